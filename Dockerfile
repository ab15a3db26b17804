# A server of predictions: docker build -t silicast . && docker run -p 127.0.0.1:8421:8421 \
#   -e SILICAST_TOKEN="$(openssl rand -hex 16)" --read-only --cap-drop ALL silicast
FROM debian:bookworm-slim AS build
RUN apt-get update && apt-get install -y --no-install-recommends ca-certificates python3 python3-venv && rm -rf /var/lib/apt/lists/*
COPY pyproject.toml README.md LICENSE NOTICE /src/
COPY src /src/src
RUN python3 -m venv /opt/silicast && /opt/silicast/bin/pip install --no-cache-dir "/src[server]"

FROM debian:bookworm-slim
RUN apt-get update && apt-get install -y --no-install-recommends python3 && rm -rf /var/lib/apt/lists/*
RUN useradd --uid 10001 --no-create-home --shell /usr/sbin/nologin silicast
COPY --from=build /opt/silicast /opt/silicast
USER 10001
EXPOSE 8421
HEALTHCHECK CMD ["/opt/silicast/bin/python", "-c", "import urllib.request as r; r.urlopen('http://127.0.0.1:8421/health', timeout=3)"]
ENTRYPOINT ["/opt/silicast/bin/silicast"]
CMD ["server", "--host", "0.0.0.0"]
