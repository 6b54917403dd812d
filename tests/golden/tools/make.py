"""Values of the public code that WildToolBench is graded with, for tests/tools_golden.rs.

    python make.py FOLDER > values.json

FOLDER holds `tool_call_graph.py` of the released evaluator. Needs the package `rouge` 1.0.1; `difflib` is Python's own.
"""

import difflib
import json
import random
import sys

sys.path.insert(0, sys.argv[1])
from rouge import Rouge
from tool_call_graph import ToolCallGraph

WORDS = "the a of weather in Oslo Las Vegas report 2024-07-13 finance.room user_001 http://x.org/a show. and. C++ é".split()


def texts(draw):
    count = draw.choice([0, 1, 1, 2, 3, 5, 9])
    joined = draw.choice([" ", " ", ". ", "  "]).join(draw.choice(WORDS) for _ in range(count))
    return joined + draw.choice(["", "", ".", " ", "..."])


def near(draw, text):
    letters = list(text)
    for _ in range(draw.randint(0, 3)):
        at = draw.randint(0, len(letters))
        kind = draw.random()
        if kind < 0.4 and at < len(letters):
            del letters[at]
        elif kind < 0.8:
            letters.insert(at, draw.choice("abc ."))
        else:
            draw.shuffle(letters)
    return "".join(letters)


def rouge_l(one, other):
    try:
        return round(Rouge().get_scores(one, other)[0]["rouge-l"]["f"], 9)
    except Exception:
        return None


def similarity(draw):
    one = texts(draw)
    other = near(draw, one) if draw.random() < 0.6 else texts(draw)
    return [one, other, round(difflib.SequenceMatcher(None, one, other).ratio(), 9), rouge_l(one, other)]


def graph(draw):
    """Names and edges of a few actions, the last an answer; how many paths, and the first of the shortest."""
    count = draw.randint(1, 5)
    names = [draw.choice("AAB" if draw.random() < 0.5 else "ABC") for _ in range(count)]
    waits = [sorted(draw.sample(range(i), draw.randint(0, min(i, 2)))) if draw.random() < 0.5 else [] for i in range(count)]
    names.append("prepare_to_answer")
    waits.append(list(range(count)))
    answers = [
        {"action": {"name": name, "arguments": {}}, "observation": "", "dependency_list": waited}
        for name, waited in zip(names, waits)
    ]
    made = ToolCallGraph(answers)
    made.add_node_list()
    made.generate_all_path()
    return ["".join(name[0] for name in names), waits, len(made.all_path_list), made.optimal_path_list[0]]


draw = random.Random(6)
print('{"texts": [')
print(",\n".join(json.dumps(similarity(draw), ensure_ascii=False) for _ in range(40)))
print('], "graphs": [')
print(",\n".join(json.dumps(graph(draw), separators=(",", ":")) for _ in range(60)))
print("]}")
