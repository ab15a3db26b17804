"""What `silicast recommend` of a 32B on 32 H200 takes, in CPU seconds of one process by pass.

All plans in closed form, 20 of them simulated with the same requests, the best ones answered in
full with intervals.

    python benchmarks/speed_recommend.py
"""

from __future__ import annotations

import argparse
import json
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import silicast
from silicast.scenario.answers.plan import serving_plans

OUT = Path(__file__).parent / "results" / "speed_recommend.json"
PASSES = {"_plans": "closed form", "_simulated": "simulated", "_in_full": "in full"}
QUESTION: dict[str, Any] = {
    "model": "Qwen3-32B",
    "device": "h200",
    "gpus": 32,
    "rate": 20.0,
    "slo": "ttft_p99=2s,tpot_p99=40ms",
}


def timed(method: Callable[..., Any], spent: list[float]) -> Callable[..., Any]:
    def measured(*given: Any) -> Any:
        start = time.process_time()
        result = method(*given)
        spent.append(time.process_time() - start)
        return result

    return measured


def main() -> None:
    argparse.ArgumentParser(description=__doc__).parse_args()
    spent: dict[str, list[float]] = defaultdict(list)
    choice: Any = vars(serving_plans)["_PlanChoice"]
    for name, words in PASSES.items():
        setattr(choice, name, timed(getattr(choice, name), spent[words]))
    start = time.process_time()
    answer = silicast.recommend(**QUESTION)
    whole_s = time.process_time() - start
    search = answer.why["recommendation"]
    figures: dict[str, Any] = {
        "question": QUESTION,
        "plans_in_closed_form": search["considered"],
        "simulated": len(spent["simulated"]),
        "in_full": len(spent["in full"]),
        "cpu_s": {name: round(sum(each), 2) for name, each in spent.items()},
        "cpu_s_whole": round(whole_s, 2),
        "best": search["best"]["plan"],
        "confidence": search["best"]["confidence"],
        "fewer_devices": search["fewer_devices"],
    }
    print(json.dumps(figures, indent=1))
    OUT.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
