"""Small files as the tools write them, made by hand."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

H100 = "NVIDIA H100 80GB HBM3"
GEMM = "nvjet_tst_128x128_64x6_2x1_v_bz_TNT"
ADD = (
    "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<c10::BFloat16>, "
    "std::array<char*, 3ul> >(int, at::native::CUDAFunctor_add<c10::BFloat16>)"
)
FLASH = (
    "void pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<128, 128, 64, 4, false, false, "
    "cutlass::bfloat16_t>, false, true>(pytorch_flash::Flash_fwd_params)"
)
NCCL_KERNEL = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
BF16 = "c10::BFloat16"


def written(folder: Path, name: str, content: str | bytes | Any) -> Path:
    """A file of text, bytes, or anything as JSON."""
    path = folder / name
    if not isinstance(content, str | bytes):
        content = json.dumps(content)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def cpu_op(
    number: int, name: str, start: float, took: float, dims: Any = None, types: Any = None,
    values: Any = None, strides: Any = None,
) -> dict[str, Any]:  # fmt: skip
    args: dict[str, Any] = {"External id": number, "Ev Idx": number}
    if dims is not None:
        args |= {"Input Dims": dims, "Input type": types, "Concrete Inputs": values or []}
        args |= {"Input Strides": strides or []}
    return {
        "ph": "X", "cat": "cpu_op", "name": name, "pid": 1, "tid": 1, "ts": start, "dur": took,
        "args": args,
    }  # fmt: skip


def on_device(
    name: str, start: float, took: float, number: int = 0, correlation: int = 0,
    cat: str = "kernel", more: dict[str, Any] | None = None,
) -> dict[str, Any]:  # fmt: skip
    args = {"External id": number, "device": 0, "stream": 7, "correlation": correlation}
    args |= more or {}
    return {
        "ph": "X", "cat": cat, "name": name, "pid": 0, "tid": 7, "ts": start, "dur": took,
        "args": args,
    }  # fmt: skip


def runtime(name: str, start: float, took: float, correlation: int) -> dict[str, Any]:
    return {
        "ph": "X", "cat": "cuda_runtime", "name": name, "pid": 1, "tid": 1, "ts": start,
        "dur": took, "args": {"correlation": correlation, "cbid": 211},
    }  # fmt: skip


def kineto(events: list[dict[str, Any]], devices: tuple[str, ...] = (H100,)) -> dict[str, Any]:
    properties = [{"id": i, "name": name, "totalGlobalMem": 1} for i, name in enumerate(devices)]
    return {
        "schemaVersion": 1, "deviceProperties": properties, "record_shapes": 1,
        "displayTimeUnit": "ms", "baseTimeNanoseconds": 1, "traceEvents": events,
        "traceName": "t.json",
    }  # fmt: skip


def gpu_trace() -> dict[str, Any]:
    """Eager operators, a graph's replay, a collective, a copy, and a kernel of nobody's."""
    events: list[dict[str, Any]] = [
        {"ph": "M", "name": "process_name", "pid": 0, "args": {"name": "python"}},
        cpu_op(1, "aten::linear", 0, 50, [[8, 64], [32, 64], []], [BF16, BF16, ""]),
        cpu_op(2, "aten::mm", 10, 20, [[8, 64], [64, 32]], [BF16, BF16]),
        cpu_op(3, "aten::linear", 60, 50, [[8, 64], [32, 64], []], [BF16, BF16, ""]),
        cpu_op(4, "aten::mm", 70, 20, [[8, 64], [64, 32]], [BF16, BF16]),
        cpu_op(5, "aten::add", 120, 20, [[8, 32], [8, 32], []], [BF16, BF16, "Scalar"],
               ["", "", "1"]),
        cpu_op(6, "aten::_scaled_dot_product_flash_attention", 150, 60,
               [[1, 8, 128, 128]] * 3 + [[]] * 4, [BF16] * 3 + ["Scalar"] * 4,
               ["", "", "", "0.", "True", "False", ""]),
        cpu_op(7, "aten::_flash_attention_forward", 160, 20),
        cpu_op(8, "aten::sort", 220, 10, [[8, 32]], [BF16]),
        runtime("cudaLaunchKernel", 15, 4, 101), runtime("cudaLaunchKernel", 75, 6, 102),
        runtime("cudaGraphLaunch", 240, 9, 110),
        on_device(GEMM, 100, 5.0, 2, 101), on_device(GEMM, 110, 7.0, 4, 102),
        on_device("splitKreduce_kernel<32, 16, int, float>", 112, 1.5, 4, 103),
        on_device(ADD, 130, 2.25, 5, 104), on_device(FLASH, 160, 11.0, 7, 105),
        on_device("void at::native::radixSortKVInPlace<2>", 222, 3.5, 8, 106),
        on_device(GEMM, 250, 4.5, 0, 110), on_device("somebody_elses", 260, 6.5),
        on_device(NCCL_KERNEL, 270, 30.0, 0, 120, more={
            "Collective name": "allreduce", "In msg nelems": 4096, "Out msg nelems": 4096,
            "Group size": 8, "dtype": "BFloat16"}),
        on_device("Memcpy HtoD (Pageable -> Device)", 310, 1.25, 0, 130, "gpu_memcpy"),
        on_device("Memset (Device)", 320, 0.75, 0, 131, "gpu_memset"),
    ]  # fmt: skip
    return kineto(events)


NSYS_KERNELS: list[tuple[str, int, int, int, int | None]] = [
    # name, start ns, end ns, correlation, graph node
    (GEMM, 10_000, 15_000, 1, None),
    (ADD, 20_000, 22_000, 2, None),
    (FLASH, 30_000, 39_000, 3, None),
    (GEMM, 50_000, 54_000, 9, 77),
]


def nsys(path: Path, *, nvtx: bool = True, devices: tuple[str, ...] = (H100,)) -> Path:
    """A database with four kernels, two of them in NVTX ranges with sizes."""
    strings: dict[str, int] = {}

    def text(value: str) -> int:
        return strings.setdefault(value, len(strings) + 1)

    with closing(sqlite3.connect(path)) as base:
        base.executescript(
            "CREATE TABLE StringIds (id INTEGER, value TEXT);"
            "CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER, end INTEGER, deviceId INTEGER,"
            " streamId INTEGER, correlationId INTEGER, demangledName INTEGER, shortName INTEGER,"
            " gridX INTEGER, graphNodeId INTEGER);"
            "CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER, end INTEGER, nameId INTEGER,"
            " correlationId INTEGER, globalTid INTEGER);"
            "CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (start INTEGER, end INTEGER, copyKind INTEGER,"
            " bytes INTEGER);"
            "CREATE TABLE TARGET_INFO_GPU (id INTEGER, name TEXT);"
            "CREATE TABLE META_DATA_EXPORT (name TEXT, value TEXT);"
            "INSERT INTO META_DATA_EXPORT VALUES ('EXPORT_PRODUCT_VERSION', '2025.1.1');"
        )
        for number, (name, start, end, correlation, node) in enumerate(NSYS_KERNELS):
            base.execute(
                "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (?,?,?,?,?,?,?,?,?)",
                (start, end, number % len(devices), 7, correlation, text(name), text("k"), 1, node),
            )
        calls = [("cudaLaunchKernel_v7000", 1000 * i, 1000 * i + 300, i) for i in (1, 2, 3)]
        calls += [("cudaLaunchKernel_v7000", 10_000 + 900 * i, 10_250 + 900 * i, 20 + i)
                  for i in range(10)]  # fmt: skip
        calls.append(("cudaGraphLaunch_v10000", 40_000, 44_000, 9))
        for name, start, end, correlation in calls:
            base.execute(
                "INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (?,?,?,?,?)",
                (start, end, text(name), correlation, 5),
            )
        base.execute("INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES (60000, 61500, 1, 4096)")
        for number, name in enumerate(devices):
            base.execute("INSERT INTO TARGET_INFO_GPU VALUES (?,?)", (number, name))
        if nvtx:
            base.execute(
                "CREATE TABLE NVTX_EVENTS (start INTEGER, end INTEGER, eventType INTEGER,"
                " text TEXT, textId INTEGER, globalTid INTEGER)"
            )
            mm = "aten::mm, seq = 4, op_id = 9, sizes = [[8, 64], [64, 32]], input_op_ids = [(1,0)]"
            add = "aten::add, seq = 5, op_id = 10, sizes = [[8, 32], [8, 32], []]"
            rows = [
                (0, 500_000, 59, "step", None, 5), (900, 1400, 59, mm, None, 5),
                (1900, 2400, 59, None, text(add), 5), (900, 9000, 59, mm, None, 6),
            ]  # fmt: skip
            base.executemany("INSERT INTO NVTX_EVENTS VALUES (?,?,?,?,?,?)", rows)
        base.executemany(
            "INSERT INTO StringIds VALUES (?,?)", [(i, value) for value, i in strings.items()]
        )
        base.commit()
    return path


NSYS_TRACE = f"""\
Start (ns),Duration (ns),CorrId,GrdX,Reg/Trd,Bytes (MB),Device,Ctx,Strm,Name
1000,5000,1,8,128,,{H100} (0),1,7,{GEMM}
7000,2000,2,8,32,,{H100} (0),1,7,"{ADD}"
9500,1500,3,,,0.004,{H100} (0),1,7,[CUDA memcpy Host-to-Device]
"""
NSYS_SUM = f"""\
Time (%),Total Time (ns),Instances,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Name
80.0,8000,2,4000.0,4000.0,3000,5000,1000.0,{GEMM}
20.0,2000,1,2000.0,2000.0,2000,2000,0.0,"{ADD}"
"""
NCU_RAW = f"""\
==PROF== Connected to process 4242 (/usr/bin/python3.11)
==PROF== Disconnected from process 4242
"ID","Process ID","Process Name","Host Name","Kernel Name","Device","CC",\
"thread Domain:Push/Pop_Range:PL_Type:PL_Value:CLR_Type:Color:Msg_Type:Msg",\
"device__attribute_display_name","gpu__time_duration.sum","sm__throughput.avg.pct"
"","","","","","","","","","us","%"
"0","4242","python","host","{GEMM}","0","9.0",\
"<default domain>:aten::mm, seq = 0, sizes = [[8, 64], [64, 32]]:none:none",\
"{H100}","5.5","12.5"
"1","4242","python","host","somebody_elses","0","9.0","","{H100}","1,002.5","3"
"""
NCU_DETAILS = f"""\
"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream","Device","CC",\
"Section Name","Metric Name","Metric Unit","Metric Value"
"0","1","p","h","{GEMM}","1","7","0","9.0","GPU Speed Of Light Throughput","DRAM Frequency",\
"Ghz","2.6"
"0","1","p","h","{GEMM}","1","7","0","9.0","GPU Speed Of Light Throughput","Duration","us","5.5"
"1","1","p","h","{GEMM}","1","7","0","9.0","GPU Speed Of Light Throughput","Duration","ns","7500"
"""
_RANKS = "\n".join(
    f"#  Rank  {i} Group  0 Pid  40 on      node1 device  {i} [0000:1{i}:00] {H100}"
    for i in range(8)
)
NCCL_HEAD = f"""\
# nThread 1 nGpus 8 minBytes 1024 maxBytes 2097152 step: 2048(factor) warmup iters: 5 iters: 20 \
agg iters: 1 validation: 1 graph: 0
#
# Using devices
{_RANKS}
#
#                                                              out-of-place                       in-place
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
"""  # noqa: E501 - as the tool prints it
NCCL = f"""\
{NCCL_HEAD}\
        1024           512      half     sum      -1    20.50    0.05    0.09      0    20.25    0.05    0.09      0
     2097152       1048576      half     sum      -1    50.00   41.94   73.40      0    49.00   42.80   74.90    N/A
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 37.1
#
"""  # noqa: E501 - as the tool prints it

VLLM: dict[str, Any] = {
    "date": "20260101-000000", "backend": "vllm", "endpoint_type": "vllm", "label": None,
    "model_id": "meta-llama/Llama-3.1-8B-Instruct", "tokenizer_id": "t", "num_prompts": 80,
    "request_rate": "inf", "burstiness": 1.0, "max_concurrency": 8, "duration": 25.0,
    "completed": 80, "total_input_tokens": 81920, "total_output_tokens": 10240,
    "request_throughput": 3.2, "output_throughput": 409.6, "total_token_throughput": 3686.4,
    "mean_ttft_ms": 62.5, "median_ttft_ms": 60.0, "std_ttft_ms": 3.0, "p99_ttft_ms": 90.0,
    "mean_tpot_ms": 7.75, "median_tpot_ms": 7.5, "std_tpot_ms": 0.1, "p99_tpot_ms": 8.5,
    "mean_itl_ms": 7.6, "median_itl_ms": 7.4, "std_itl_ms": 0.5, "p99_itl_ms": 15.0,
    "mean_e2el_ms": 1046.0, "p90_e2el_ms": 1100.0, "p95_e2el_ms": 1150.0,
}  # fmt: skip
VLLM_PRINT = """\
Maximum request concurrency: 8
============ Serving Benchmark Result ============
Successful requests:                     80
Benchmark duration (s):                  25.00
Total input tokens:                      81920
Total generated tokens:                  10240
Request throughput (req/s):              3.20
Output token throughput (tok/s):         409.60
Total Token throughput (tok/s):          3686.40
---------------Time to First Token----------------
Mean TTFT (ms):                          62.50
Median TTFT (ms):                        60.00
P99 TTFT (ms):                           90.00
-----Time per Output Token (excl. 1st token)------
Mean TPOT (ms):                          7.75
Median TPOT (ms):                        7.50
P99 TPOT (ms):                           8.50
==================================================
"""
BATCH_LATENCY = """\
Avg latency: 1.25 seconds
10% percentile latency: 1.2 seconds
50% percentile latency: 1.25 seconds
99% percentile latency: 1.5 seconds
"""
OFFLINE = {
    "vllm-throughput": """\
Throughput: 20.00 requests/s, 12,800.00 total tokens/s, 2560.00 output tokens/s
Total num prompt tokens:  512000
Total num output tokens:  128000
""",
    "sglang-offline": """\
====== Offline Throughput Benchmark Result =======
Backend:                                 engine
Successful requests:                     1000
Benchmark duration (s):                  50.00
Total input tokens:                      512000
Total generated tokens:                  128000
Last generation throughput (tok/s):      2000.00
Request throughput (req/s):              20.00
Output token throughput (tok/s):         2560.00
Total token throughput (tok/s):          12800.00
==================================================
""",
}
SGLANG_PRINT = """\
============ Serving Benchmark Result ============
Backend:                                 sglang
Traffic request rate:                    4.0
Max request concurrency:                 not set
Successful requests:                     100
Benchmark duration (s):                  30.00
Total input tokens:                      51200
Total generated tokens:                  25600
Request throughput (req/s):              3.33
Output token throughput (tok/s):         853.33
----------------End-to-End Latency----------------
Mean E2E Latency (ms):                   2100.00
---------------Time to First Token----------------
Mean TTFT (ms):                          80.00
P99 TTFT (ms):                           200.00
==================================================
"""
SGLANG: dict[str, Any] = {
    "tag": None, "backend": "sglang", "dataset_name": "random", "request_rate": float("inf"),
    "max_concurrency": 16, "sharegpt_output_len": None, "random_input_len": 1024,
    "random_output_len": 256, "random_range_ratio": 1.0,
    "server_info": {"model_path": "Qwen/Qwen2.5-7B-Instruct", "tp_size": 4, "dp_size": 2,
                    "pp_size": 1, "ep_size": 1, "enable_dp_attention": True, "version": "0.5.2"},
    "duration": 40.0, "completed": 160, "total_input_tokens": 163840,
    "total_output_tokens": 40960, "request_throughput": 4.0, "output_throughput": 1024.0,
    "mean_e2e_latency_ms": 3900.0, "median_e2e_latency_ms": 3880.0, "p99_e2e_latency_ms": 4300.0,
    "mean_ttft_ms": 110.0, "median_ttft_ms": 105.0, "p99_ttft_ms": 200.0, "mean_tpot_ms": 14.9,
    "median_tpot_ms": 14.8, "p99_tpot_ms": 17.0, "mean_itl_ms": 14.7, "median_itl_ms": 14.2,
    "p99_itl_ms": 40.0, "concurrency": 15.6, "accept_length": None,
}  # fmt: skip


def guidellm(*strategies: dict[str, Any]) -> dict[str, Any]:
    """A file of guidellm with a run of each strategy."""

    def summary(mean: float, **others: float) -> dict[str, Any]:
        percentiles = {"p50": mean, "p90": 2 * mean, "p95": 3 * mean, "p99": 4 * mean}
        table = {"mean": mean, "median": mean, "min": 0.0, "percentiles": percentiles, **others}
        return {"successful": table, "errored": {"mean": 1.0}}

    metrics = {
        "requests_per_second": summary(3.2), "request_concurrency": summary(7.9),
        "request_latency": summary(1.05), "prompt_token_count": summary(1024.0),
        "output_token_count": summary(128.0), "time_to_first_token_ms": summary(61.0),
        "time_per_output_token_ms": summary(8.2), "inter_token_latency_ms": summary(7.7),
        "output_tokens_per_second": summary(409.6),
    }  # fmt: skip
    made = {"successful": 80, "errored": 1, "incomplete": 0, "total": 81}
    run = {"metrics": metrics, "scheduler_metrics": {"requests_made": made}, "duration": 25.0}
    backend = {"kind": "openai_http", "model": "meta-llama/Llama-3.1-8B-Instruct"}
    return {
        "metadata": {"version": 2, "guidellm_version": "0.8.1"},
        "config": {"spec": {"backend": backend}},
        "benchmarks": [{**run, "config": {"strategy": each}} for each in strategies],
    }


GENAI: dict[str, Any] = {
    "request_throughput": {"unit": "requests/sec", "avg": 3.25},
    "request_latency": {"unit": "ms", "avg": 1050.0, "p50": 1040.0, "p90": 1100.0, "p95": 1150.0,
                        "p99": 1200.0},
    "request_count": {"unit": "count", "avg": 100},
    "time_to_first_token": {"unit": "ms", "avg": 61.0, "p50": 60.0, "p90": 70.0, "p95": 75.0,
                            "p99": 80.0},
    "time_to_second_token": {"unit": "ms", "avg": 8.0},
    "inter_token_latency": {"unit": "ms", "avg": 7.7, "p50": 7.6, "p90": 8.0, "p95": 8.5,
                            "p99": 9.0},
    "output_token_throughput": {"unit": "tokens/sec", "avg": 416.0},
    "output_sequence_length": {"unit": "tokens", "avg": 128.2},
    "input_sequence_length": {"unit": "tokens", "avg": 1024.0},
    "input_config": {"model_names": ["meta-llama/Llama-3.1-8B-Instruct"],
                     "endpoint": {"backend": "tensorrtllm", "service_kind": "openai",
                                  "type": "chat"},
                     "perf_analyzer": {"stimulus": {"concurrency": 8}}},
}  # fmt: skip
GENAI_CSV = """\
Metric,avg,min,max,p99,p95,p90,p75,p50,p25,p10,p5,p1
Time To First Token (ms),61.00,50.00,90.00,80.00,75.00,70.00,65.00,60.00,55.00,52.00,51.00,50.00
Request Latency (ms),"1,050.00","1,000.00","1,300.00","1,200.00","1,150.00","1,100.00",\
"1,060.00","1,040.00","1,020.00","1,010.00","1,005.00","1,000.00"
Inter Token Latency (ms),7.70,7.00,9.90,9.00,8.50,8.00,7.80,7.60,7.40,7.20,7.10,7.00
Output Sequence Length (tokens),128.20,120,130,130,130,129,128,128,128,127,126,120
Input Sequence Length (tokens),1024.00,1024,1024,1024,1024,1024,1024,1024,1024,1024,1024,1024

Metric,Value
Output Token Throughput (tokens/sec),416.00
Request Throughput (requests/sec),3.25
Request Count (count),100.00
"""
AIPERF: dict[str, Any] = {
    **{name: value for name, value in GENAI.items() if name not in ("input_config",)},
    "schema_version": "1.1", "aiperf_version": "0.3.0",
    "inter_chunk_latency": {"unit": "ms", "avg": 7.9, "p50": 7.8, "p99": 12.0},
    "benchmark_duration": {"unit": "sec", "avg": 30.0},
    "input_config": {"endpoint": {"model_names": ["meta-llama/Llama-3.1-8B-Instruct"]},
                     "loadgen": {"request_rate": 4.0, "concurrency": None}},
}  # fmt: skip
TRTLLM: dict[str, Any] = {
    "engine": {"model": "meta-llama/Llama-3.1-8B", "version": "1.0.0", "backend": "pytorch"},
    "world_info": {"tp_size": 2, "pp_size": 1, "ep_size": None, "world_size": 2},
    "request_info": {"num_requests": 300, "avg_num_concurrent_requests": 63.7,
                     "avg_input_length": 128.0, "avg_output_length": 128.0},
    "performance": {"request_throughput_req_s": 20.0, "system_output_throughput_tok_s": 2560.0,
                    "total_latency_ms": 15000.0, "avg_request_latency_ms": 1200.0,
                    "request_latency_percentiles_ms": {"average": 1200.0, "p50": 1190.0,
                                                       "p90": 1300.0, "p99": 1400.0}},
    "streaming_metrics": {"avg_ttft_ms": 90.0, "avg_tpot_ms": 8.74,
                          "ttft_percentiles": {"average": 9.0e7, "p50": 8.5e7, "p99": 2e8},
                          "tpot_percentiles": {"average": 8.74, "p50": 8.7}},
}  # fmt: skip
TRTLLM_PRINT = """\
===========================================================
= PYTORCH BACKEND
===========================================================
Model:                  meta-llama/Llama-3.1-8B
Model Path:             None
TensorRT LLM Version:   1.0.0
Dtype:                  bfloat16

===========================================================
= REQUEST DETAILS
===========================================================
Number of requests:             300
Number of concurrent requests:  63.7000
Average Input Length (tokens):  128.0000
Average Output Length (tokens): 128.0000
===========================================================
= WORLD + RUNTIME INFORMATION
===========================================================
TP Size:                2
PP Size:                1
EP Size:                None
KV Memory Percentage:   90.00%

===========================================================
= PERFORMANCE OVERVIEW
===========================================================
Request Throughput (req/sec):                     20.0000
Total Output Throughput (tokens/sec):             2560.0000
Total Latency (ms):                               15000.0000
Average request latency (ms):                     1200.0000
Average time-to-first-token [TTFT] (ms):          90.0000
Average time-per-output-token [TPOT] (ms):        8.7400

-- Per-Request Time-to-First-Token [TTFT] Breakdown (ms)

[TTFT] MINIMUM: 50.0000
[TTFT] AVERAGE: 90.0000
[TTFT] P50    : 85.0000
[TTFT] P99    : 200.0000
-- Request Latency Breakdown (ms) -----------------------
[Latency] P50    : 1190.0000
[Latency] P90    : 1300.0000
"""

LLAMA_BENCH = """\
ggml_cuda_init: found 1 CUDA devices:
  Device 0: NVIDIA GeForce RTX 4090, compute capability 8.9, VMM: yes
| model                  |     size |  params | backend | ngl | n_ubatch | fa |          test |            t/s |
| ---------------------- | -------: | ------: | ------- | --: | -------: | -: | ------------: | -------------: |
| llama 8B Q4_K - Medium | 4.58 GiB |  8.03 B | CUDA    |  99 |      512 |  1 |         pp512 |  10240.00 ± 10 |
| llama 8B Q4_K - Medium | 4.58 GiB |  8.03 B | CUDA    |  99 |      512 |  1 | tg128 @ d4096 |   125.00 ± 0.2 |
| llama 8B Q4_K - Medium | 4.58 GiB |  8.03 B | CUDA    |  20 |      512 |  1 |         tg128 |    38.10 ± 0.2 |

build: 54a241f50 (6239)
"""  # noqa: E501
STEPS = "\n".join(
    f"[2026-03-01 12:00:00] Decode batch, #running-req: 8, #token: {held}, token usage: 0.05, "
    f"cuda graph: True, gen throughput (token/s): {rate}, #queue-req: 0, "
    for held, rate in ((8000, 800.0), (8320, 805.0), (8640, 790.0))
)
ONE_BATCH = """\
Benchmark ...
Prefill. latency: 0.12500 s, throughput:  32768.00 token/s
Decode 0. Batch size: 4, latency: 0.00800 s, throughput:    500.00 token/s
Decode.  median latency: 0.00800 s, median throughput:    500.00 token/s
Total. latency:  0.245 s, throughput:  16979.59 token/s
"""
