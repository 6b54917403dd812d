"""Verdicts of the leaderboard's own AST checker, for tests/bfcl.rs.

    python make.py DATA > verdicts.json

DATA is the leaderboard's data folder (packed files). Needs the package `bfcl-eval` 2025 or later; nothing of it but the
checker is imported. For every record: the letter of its expected calls, and of those calls changed by a rule that the
record's place chooses (p: right, f: wrong).
"""

import gzip
import json
import sys
import types

stub = types.ModuleType("bfcl_eval.constants.model_config")
stub.MODEL_CONFIG_MAPPING = {"none": types.SimpleNamespace(underscore_to_dot=False)}
sys.modules[stub.__name__] = stub
from bfcl_eval.constants.enums import Language
from bfcl_eval.eval_checker.ast_eval.ast_checker import ast_checker

CATEGORIES = [
    "simple_python", "multiple", "parallel", "parallel_multiple", "live_simple", "live_parallel", "live_parallel_multiple",
]  # fmt: skip


def lines(path):
    with gzip.open(path, "rt") as file:
        return [json.loads(line) for line in file]


def shown(value):
    if isinstance(value, dict):
        picked = {name: [v for v in values if v != ""] for name, values in value.items()}
        return {name: shown(values[0]) for name, values in picked.items() if values}
    return [shown(item) for item in value] if isinstance(value, list) else value


def expected(call):
    [(name, arguments)] = call.items()
    picked = {argument: [v for v in values if v != ""] for argument, values in arguments.items()}
    return {name: {argument: shown(values[0]) for argument, values in picked.items() if values}}


def other(value):
    if isinstance(value, bool):
        return not value
    if isinstance(value, str):
        return value + "x"
    if isinstance(value, (int, float)):
        return value + 1
    return value + [1] if isinstance(value, list) else {}


def loud(value):
    if isinstance(value, str):
        return value.upper() + " ."
    return [loud(item) for item in value] if isinstance(value, list) else value


def changed(place, calls):
    calls = json.loads(json.dumps(calls))
    [arguments] = calls[0].values()
    first = next(iter(arguments), None)
    rule = place % 6
    if rule == 0 and first:
        del arguments[first]
    elif rule == 1:
        arguments["extra"] = 1
    elif rule == 3:
        calls.reverse()
        for call in calls:
            for given in call.values():
                given.update({name: loud(value) for name, value in given.items()})
    elif rule == 4 and first and type(arguments[first]) is int:
        arguments[first] = float(arguments[first])
    elif rule == 5:
        calls.pop()
    elif first:
        arguments[first] = other(arguments[first])
    return calls


def letter(category, record, answer, calls):
    try:
        valid = ast_checker(record["function"], calls, answer, Language.PYTHON, category, "none")["valid"]
    except Exception:
        return "x"
    return "p" if valid else "f"


verdicts = {}
for category in CATEGORIES:
    answers = {line["id"]: line["ground_truth"] for line in lines(f"{sys.argv[1]}/possible_answer/BFCL_v4_{category}.jsonl.gz")}
    letters = ["", ""]
    for place, record in enumerate(lines(f"{sys.argv[1]}/BFCL_v4_{category}.jsonl.gz")):
        answer = answers[record["id"]]
        calls = [expected(call) for call in answer]
        letters[0] += letter(category, record, answer, calls)
        letters[1] += letter(category, record, answer, changed(place, calls))
    verdicts[category] = letters
print(json.dumps(verdicts, indent=1))
