"""Makes the golden file of the chat template tests.

    python3 make.py SMOLLM2.gguf > golden.json

Renders every probe with Python's Jinja2 in the settings that transformers gives it (`_cached_compile_jinja_template` in
`utils/chat_template_utils.py`). SmolLM2's own template is read from its GGUF file; the other templates are ours. Needs
the packages jinja2 (3.1) and gguf.
"""

import datetime
import json
import sys

import gguf
import jinja2
import jinja2.ext
from jinja2.sandbox import ImmutableSandboxedEnvironment

NOW = datetime.datetime(2024, 7, 26, 9, 5)


class Generation(jinja2.ext.Extension):
    """`{% generation %}` prints its body."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_body"), [], [], body).set_lineno(line)

    def _body(self, caller):
        return caller()


def environment():
    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    env = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols]
    )
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = NOW.strftime
    return env


def say(role, content, **more):
    return {"role": role, "content": content, **more}


WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "Today's weather; is t < 0 & 'cold'? naïve 天気",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}, "days": {"type": "integer", "default": 1.0, "max": 1e20}},
            "required": ["city"],
        },
    },
}
CALL = {"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": {"city": "Zürich", "days": 2}}}

CHATS = {
    "user": [say("user", "Hi")],
    "system": [say("system", "Be brief."), say("user", "What is 2+2?")],
    "turns": [say("user", "a"), say("assistant", "b"), say("user", "  c\n\n"), say("assistant", "d "), say("user", "e")],
    "odd": [say("user", "{{ 7*7 }} {% raw %} <|im_end|>\n\ttab é 中 😀 \\n \"q\" 'p'"), say("assistant", "")],
    "think": [say("user", "q"), say("assistant", "<think>\nr\n</think>\n\nans"), say("user", "again")],
    "tools": [
        say("system", "Use tools."), say("user", "Weather?"),
        {"role": "assistant", "content": None, "tool_calls": [CALL]}, say("tool", "{\"t\": 3}", name="weather"),
    ],
    "parts": [say("user", [{"type": "text", "text": "one"}, {"type": "image"}, {"type": "text", "text": "two"}])],
}

CHATML = (
    "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)

HEADERS = """{{- bos_token }}
{%- if custom_tools is defined %}
    {%- set tools = custom_tools %}
{%- endif %}
{%- if not date_string is defined %}
    {%- if strftime_now is defined %}
        {%- set date_string = strftime_now("%d %b %Y") %}
    {%- else %}
        {%- set date_string = "26 Jul 2024" %}
    {%- endif %}
{%- endif %}
{#- the system message comes first #}
{%- if messages[0]['role'] == 'system' %}
    {%- set system = messages[0]['content'] | trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system = "" %}
{%- endif %}
{{- "<|header|>system<|/header|>\\n\\nToday: " + date_string + "\\n\\n" + system + "<|eot|>" }}
{%- for message in messages %}
    {%- if message.tool_calls is defined and message.tool_calls %}
        {%- for call in message.tool_calls %}
            {%- set call = call.function %}
            {{- '<|header|>call<|/header|>\\n\\n{"name": "' + call.name + '", "arguments": ' }}
            {{- call.arguments | tojson }}
            {{- "}<|eot|>" }}
        {%- endfor %}
    {%- elif message.role == "tool" or message.role == "ipython" %}
        {{- "<|header|>ipython<|/header|>\\n\\n" }}
        {%- if message.content is mapping or message.content is iterable %}
            {{- message.content | tojson }}
        {%- else %}
            {{- message.content }}
        {%- endif %}
        {{- "<|eot|>" }}
    {%- else %}
        {{- '<|header|>' + message['role'] + '<|/header|>\\n\\n' + message['content'] | trim + '<|eot|>' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|header|>assistant<|/header|>\\n\\n' }}
{%- endif %}
"""

THINKING = """{%- if tools %}
    {{- '<|im_start|>system\\n' }}
    {%- if messages[0].role == 'system' %}
        {{- messages[0].content + '\\n\\n' }}
    {%- endif %}
    {{- "# Tools\\n<tools>" }}
    {%- for tool in tools %}
        {{- "\\n" }}
        {{- tool | tojson }}
    {%- endfor %}
    {{- "\\n</tools><|im_end|>\\n" }}
{%- elif messages[0].role == 'system' %}
    {{- '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}
{%- endif %}
{%- set ns = namespace(multi=true, last=messages|length - 1) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if ns.multi and message.role == "user" and message.content is string and not(message.content.startswith('<r>') and message.content.endswith('</r>')) %}
        {%- set ns.multi = false %}
        {%- set ns.last = index %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- if message.content is string %}
        {%- set content = message.content %}
    {%- else %}
        {%- set content = '' %}
    {%- endif %}
    {%- if (message.role == "user") or (message.role == "system" and not loop.first) %}
        {{- '<|im_start|>' + message.role + '\\n' + content + '<|im_end|>' + '\\n' }}
    {%- elif message.role == "assistant" %}
        {%- set reasoning = '' %}
        {%- if '</think>' in content %}
            {%- set reasoning = content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}
            {%- set content = content.split('</think>')[-1].lstrip('\\n') %}
        {%- endif %}
        {{- '<|im_start|>' + message.role }}
        {%- if loop.index0 > ns.last and (loop.last or (not loop.last and reasoning)) %}
            {{- '\\n<think>\\n' + reasoning.strip('\\n') + '\\n</think>\\n\\n' + content.lstrip('\\n') }}
        {%- else %}
            {{- '\\n' + content }}
        {%- endif %}
        {%- if message.tool_calls %}
            {%- for call in message.tool_calls %}
                {%- if (loop.first and content) or (not loop.first) %}
                    {{- '\\n' }}
                {%- endif %}
                {%- if call.function %}
                    {%- set call = call.function %}
                {%- endif %}
                {{- '<tool_call>\\n{"name": "' }}
                {{- call.name }}
                {{- '", "arguments": ' }}
                {%- if call.arguments is string %}
                    {{- call.arguments }}
                {%- else %}
                    {{- call.arguments | tojson }}
                {%- endif %}
                {{- '}\\n</tool_call>' }}
            {%- endfor %}
        {%- endif %}
        {{- '<|im_end|>\\n' }}
    {%- elif message.role == "tool" %}
        {%- if loop.first or (messages[loop.index0 - 1].role != "tool") %}
            {{- '<|im_start|>user' }}
        {%- endif %}
        {{- '\\n<tool_response>\\n' }}
        {{- content }}
        {{- '\\n</tool_response>' }}
        {%- if loop.last or (messages[loop.index0 + 1].role != "tool") %}
            {{- '<|im_end|>\\n' }}
        {%- endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}
        {{- '<think>\\n\\n</think>\\n\\n' }}
    {%- endif %}
{%- endif %}"""

ALTERNATING = """{{ bos_token }}{% for message in messages %}
{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}
{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}
{% endif %}
{% if message['role'] == 'user' %}
{{ '[INST] ' + message['content'] + ' [/INST]' }}
{%- elif message['role'] == 'assistant' %}
{{ message['content'] + eos_token }}
{%- else %}
{{ raise_exception('Only user and assistant roles are supported!') }}
{% endif %}
{% endfor %}"""

TURNS = """{{ bos_token }}
{%- if messages[0]['role'] == 'system' -%}
    {%- if messages[0]['content'] is string -%}
        {%- set prefix = messages[0]['content'] + '\n\n' -%}
    {%- else -%}
        {%- set prefix = messages[0]['content'][0]['text'] + '\n\n' -%}
    {%- endif -%}
    {%- set rest = messages[1:] -%}
{%- else -%}
    {%- set prefix = "" -%}
    {%- set rest = messages -%}
{%- endif -%}
{%- for message in rest -%}
    {%- if (message['role'] == 'assistant') -%}
        {%- set role = "model" -%}
    {%- else -%}
        {%- set role = message['role'] -%}
    {%- endif -%}
    {{ '<turn>' + role + '\n' + (prefix if loop.first else "") }}
    {%- if message['content'] is string -%}
        {{ message['content'] | trim }}
    {%- elif message['content'] is iterable -%}
        {%- for item in message['content'] -%}
            {%- if item['type'] == 'image' -%}
                {{ '<image>' }}
            {%- elif item['type'] == 'text' -%}
                {{ item['text'] | trim }}
            {%- endif -%}
        {%- endfor -%}
    {%- else -%}
        {{ raise_exception("Invalid content type") }}
    {%- endif -%}
    {{ '</turn>\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}
    {{'<turn>model\n'}}
{%- endif -%}
"""

MACROS = """{%- macro show(value, depth=0) -%}
{%- if value is mapping -%}
{%- for key, item in value.items() -%}{{ '  ' * depth }}{{ key }}:
{{ show(item, depth + 1) }}
{%- endfor -%}
{%- elif value is string -%}{{ '  ' * depth }}{{ value }}
{% elif value is iterable -%}
{%- for item in value -%}{{ '  ' * depth }}- {{ show(item) }}{%- endfor -%}
{%- else -%}{{ '  ' * depth }}{{ value }}
{% endif -%}
{%- endmacro -%}
{%- for tool in tools -%}{{ show(tool.function) }}{%- endfor -%}
"""

GENERATION = (
    "{% for m in messages %}{% if m.role == 'assistant' %}{% generation %}{{ m.content }}<end>\n{% endgeneration %}"
    "{% else %}{{ m.role }}: {{ m.content }}\n{% endif %}{% endfor %}"
)

# One small template each; `x` is DATA unless the probe says otherwise.
FEATURES = [
    "{{ none }} {{ true }} {{ false }} {{ 1 }} {{ 1.0 }} {{ 1e20 }} {{ 1e-7 }} {{ 0.1 + 0.2 }} {{ 10 / 4 }} {{ 7 // 2 }} {{ 7 % 3 }}",
    "{{ -7 // 2 }} {{ -7 % 3 }} {{ 2 ** 10 }} {{ 3 * 'ab' }} {{ 'a' ~ 1 ~ none }}",
    "{{ [1, 'a', none, true, 2.5] }} {{ {'k': 'v', 'n': [1]} }} {{ (1, 2) }} {{ [] }} {{ {} }}",
    "{{ \"it's\" }} {{ [\"it's\", 'say \"x\"', 'tab\\t', 'nl\\n', 'é'] }}",
    "{{ x.list[0] }}{{ x.list[-1] }}{{ x.list[1:3] }}{{ x.list[::-1] }}{{ x.list[::2] }}{{ 'hello'[1:3] }}{{ 'hello'[::-1] }}",
    "{% for a, b in x.pairs %}{{ a }}={{ b }},{% endfor %}{% for k in x.map %}{{ k }},{% endfor %}{% for k, v in x.map|items %}{{ k }}{{ v }}{% endfor %}",
    "{% for k, v in x.map | dictsort %}{{ k }}{{ v }};{% endfor %}{{ x.map.keys() | list }}{{ x.map.values() | list }}{{ x.map.items() | list }}",
    "{% for i in x.list %}{{ loop.index }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.revindex }}{{ loop.previtem }}{{ loop.nextitem }}|{% endfor %}",
    "{% for i in range(3) %}{{ i }}{% else %}none{% endfor %}{% for i in [] %}x{% else %}none{% endfor %}{{ range(5, 0, -2) | list }}{{ range(2, 4) | list }}",
    "{% for i in range(6) if i % 2 %}{{ loop.index0 }}:{{ i }} {% endfor %}{% for i in range(9) %}{% if i == 2 %}{% continue %}{% endif %}{% if i == 4 %}{% break %}{% endif %}{{ i }}{% endfor %}",
    "{% set ns = namespace(n=0, s='') %}{% for i in x.list %}{% set ns.n = ns.n + i %}{% set ns.s = ns.s ~ i %}{% endfor %}{{ ns.n }} {{ ns.s }}",
    "{% set y = 1 %}{% for i in [1] %}{% set y = 2 %}{% endfor %}{{ y }}{% if true %}{% set y = 3 %}{% endif %}{{ y }}",
    "{% set block %}  a\n  b {{ 1 }}\n{% endset %}[{{ block }}]{% filter upper %}abc{% endfilter %}",
    "{{ 'a' if false }}|{{ 'a' if true else 'b' }}|{{ x.none or 'd' }}|{{ x.none is none }}|{{ not x.none }}|{{ 1 and 2 }}|{{ 0 or '' }}",
    "{{ missing }}|{{ missing is defined }}|{{ missing | default('d') }}|{{ x.nope }}|{{ x.nope is undefined }}|{{ x.none | default('d') }}|{{ x.none | default('d', true) }}",
    "{{ missing | length }}|{% for i in missing %}x{% endfor %}|{{ missing ~ 'a' }}|{% if missing %}t{% else %}f{% endif %}|{{ missing | list }}",
    "{{ 1 is number }}{{ '1' is number }}{{ true is number }}{{ 1 is integer }}{{ 1.0 is float }}{{ true is boolean }}{{ none is none }}{{ 'a' is string }}{{ x.map is mapping }}{{ x.list is sequence }}{{ 'a' is sequence }}{{ x.map is sequence }}",
    "{{ x.list is iterable }}{{ 'a' is iterable }}{{ x.map is iterable }}{{ 1 is iterable }}{{ none is iterable }}{{ x.none is iterable }}{{ 3 is odd }}{{ 4 is divisibleby 2 }}{{ 1 is eq 1 }}{{ 2 is in [1, 2] }}{{ 'A' is upper }}{{ x is callable }}",
    "{{ 'a' in 'abc' }}{{ 'k' in x.map }}{{ 2 in x.list }}{{ 'z' not in x.list }}{{ 1 == 1.0 }}{{ 'a' < 'b' }}{{ [1, 2] == [1, 2] }}{{ 1 < 2 < 3 }}{{ none == false }}",
    "{{ ' a b '.strip() }}|{{ 'xxaxx'.strip('x') }}|{{ '\\n\\na\\n'.lstrip('\\n') }}|{{ 'a,b,,c'.split(',') }}|{{ ' a  b '.split() }}|{{ 'a-b-c'.split('-', 1) }}",
    "{{ 'Hello World'.upper() }}{{ 'Hello'.lower() }}{{ 'hello world'.title() }}{{ 'hELLO'.capitalize() }}{{ 'abc'.replace('b', 'x') }}{{ 'aaa'.replace('a', 'b', 2) }}{{ 'abc'.startswith('ab') }}{{ 'abc'.endswith(('x', 'c')) }}{{ 'a.b'.find('.') }}{{ 'abc'.find('z') }}{{ 'a1'.isalnum() }}{{ '12'.isdigit() }}{{ 'banana'.count('an') }}{{ ', '.join(['a', 'b']) }}",
    "{{ 'a\\nb\\n'.splitlines() }}{{ 'a b' | title }}{{ 'abc' | first }}{{ 'abc' | last }}{{ 'abc' | length }}{{ x.list | sum }}{{ x.list | min }}{{ x.list | max }}{{ x.list | join('-') }}{{ x.list | reverse | list }}{{ [3, 1, 2] | sort }}{{ [1, 1, 2] | unique | list }}",
    "{{ x.people | map(attribute='name') | join(',') }}|{{ x.people | selectattr('age', 'ge', 30) | map(attribute='name') | list }}|{{ x.people | rejectattr('name', 'equalto', 'Ann') | list | length }}|{{ ['a', 'b'] | map('upper') | list }}|{{ [1, 2, 3] | select('odd') | list }}|{{ x.people | groupby('age') | map('first') | list }}|{{ x.people | sort(attribute='name', reverse=true) | map(attribute='name') | first }}",
    "{{ 'x' | indent(4) }}|{{ 'a\\nb\\n\\nc' | indent(2) }}|{{ 'a\\nb' | indent(2, true) }}|{{ 'a\\n\\nb' | indent(2, false, true) }}|{{ '  trim  ' | trim }}|{{ 'xax' | trim('x') }}",
    "{{ '12' | int }}{{ 'z' | int }}{{ 'z' | int(7) }}{{ '1.5' | float }}{{ 3.7 | int }}{{ 1 | float }}{{ 1 | string + 'a' }}{{ 2.567 | round(1) }}{{ 2.5 | round }}{{ -3 | abs }}{{ true | int }}{{ none | int }}{{ 'z' | float }}{{ 'ff' | int(0, 16) }}{{ '3.9' | int }}{{ ' 4 ' | int }}{{ '1_000' | int }}{{ [] | float(2.5) }}",
    "{{ '<a href=\"x\">&amp;</a>' }}{{ '<b>' | e }}{{ '<b>' | safe }}{{ '<' ~ '>' }}",
    "{{ x | tojson }}\n{{ x | tojson(indent=2) }}\n{{ 'a<b>&\\'\"\\n\\u00e9' | tojson }}{{ 'é😀' | tojson(ensure_ascii=true) }}",
    "{{ {'b': 1, 'a': [1, 2.0, none, true]} | tojson(sort_keys=true) }}{{ {'b': 1} | tojson(separators=(',', ':')) }}{{ [] | tojson(indent=2) }}{{ {} | tojson }}{{ [[], {}] | tojson(indent=1) }}{{ {1: 2, none: 3, true: 4} | tojson }}{{ 1e16 | tojson }}{{ 1e-5 | tojson }}{{ (1, 2) | tojson }}",
    "{%- macro m(a, b='d', c=none) -%}{{ a }}{{ b }}{{ c }}{%- endmacro -%}{{ m(1) }}{{ m(1, 2) }}{{ m(1, c=3) }}{% macro m2() %}[{{ caller() }}]{% endmacro %}{% call m2() %}x{% endcall %}",
    "{% raw %}{{ x }}{% endraw %}{# a\ncomment #}|{% with y = 2 %}{{ y }}{% endwith %}|{% if x.list | length > 2 and x.map.k == 'v' %}ok{% endif %}",
    "a\n  {% if true %}\nb\n  {% endif %}\nc\n\n  {# comment #}\nd\n    {{ 1 }}\ne\n{%- if true -%}\n  f  \n{%- endif +%}\n g\n  {%+ if true %}h{% endif %}\n",
    "x\n\n", "x\n", "x", "\n\nx", "{% if true %}\n\n a{% endif %}\n\n", "{{ 1 }}\n{{ 2 }}\n", "  {{ 1 }}  \n  {%- set y = 1 %}  \n  {{ y }}",
    "{{ strftime_now('%d %b %Y') }}|{{ strftime_now('%Y-%m-%d %H:%M') }}|{{ strftime_now('%A, %B %d, %j %y %I %p %S') }}|{{ strftime_now is defined }}",
    "{{ dict(a=1, b='x') }}{{ dict(a=1).a }}{% set c = cycler('a', 'b') %}{{ c.next() }}{{ c.next() }}{{ c.next() }}{% set j = joiner(', ') %}{{ j() }}1{{ j() }}2",
    "{{ x.map['k'] }}{{ x['list'][0] }}{{ x.map.get('k') }}{{ x.map.get('q') }}{{ x.map.get('q', 5) }}{{ x.people[0].name[0] }}{{ x['people'][-1]['name'] }}",
    "{{ '%s-%d' | format('a', 3) }}{{ '{} {}'.format(1, 'b') }}{{ '{:>5}|{:.2f}'.format('a', 1.5) }}",
    "{% set a, b = (1, 2) %}{{ a }}{{ b }}{% set q = [1] + [2] %}{{ q }}{% set d = {'a': 1} %}{{ d['a'] }}{{ [1, 2, 3] | batch(2) | list }}{{ 'a-b' | replace('-', '+') }}",
    "{{ messages | length }}{{ messages[0].role }}{{ messages | selectattr('role', 'equalto', 'user') | list | length }}{{ (messages | last).content }}{{ add_generation_prompt }}{{ tools is defined }}{{ bos_token }}{{ eos_token }}",
    "{{ 'é'.upper() }}{{ 'ǅ' | lower }}{{ '中文'[0] }}{{ '😀a'[0] }}{{ '😀a' | length }}{{ 'ab'.isalpha() }}{{ ' '.isspace() }}{{ 'ß' | upper }}",
    # Errors.
    "{{ raise_exception('no: ' ~ 1) }}", "{{ '<' + none }}", "{{ 1 + 'a' }}", "{{ missing.attr }}", "{{ missing + 'a' }}", "{{ missing() }}",
    "{{ x.list.append(9) }}", "{{ x.map.update({'a': 1}) }}", "{{ ''.__class__.__mro__ }}", "{{ x.list.pop() }}", "{{ messages[0].clear() }}",
    "{% for i in range(999999999) %}x{% endfor %}", "{% if %}x{% endif %}", "{% for x in %}", "{{ 'unclosed }}", "{{ x | nofilter }}", "{{ x.list | tojson(indent=2, bogus=1) }}",
    "{{ messages[7].content }}", "{{ none.a.b }}", "{{ x is notest }}",
]

DATA = {
    "list": [1, 2, 3], "map": {"k": "v", "a": 1}, "none": None, "pairs": [["a", 1], ["b", 2]], "text": "é<&>'\"\n",
    "people": [{"name": "Ann", "age": 30}, {"name": "Bob", "age": 25}, {"name": "Cid", "age": 30}], "f": 1.5, "big": 12345678901234567890,
}

KINDS = [
    (jinja2.exceptions.SecurityError, "security"), (jinja2.exceptions.UndefinedError, "undefined"),
    (jinja2.exceptions.TemplateSyntaxError, "syntax"), (jinja2.exceptions.TemplateError, "raised"), (OverflowError, "limit"),
    (TypeError, "type"),
]


def probe(name, template, given):
    variables = {"bos_token": "<bos>", "eos_token": "<eos>", **given.get("vars", {})}
    variables |= {key: given[key] for key in ("messages", "add_generation_prompt", "tools") if key in given}
    result = {"name": name, "given": given}
    try:
        result["text"] = environment().from_string(template).render(**variables)
    except Exception as error:
        result["error"] = next(kind for type_, kind in KINDS if isinstance(error, type_))
        result["python"] = f"{type(error).__name__}: {error}"
    return result


def named(smollm2):
    return {
        "smollm2": smollm2, "chatml": CHATML, "headers": HEADERS, "thinking": THINKING, "alternating": ALTERNATING,
        "turns": TURNS, "generation": GENERATION, "macros": MACROS,
    }


def probes(templates):
    """Probes are called `template/what`; features carry a template of their own."""
    for name, template in templates.items():
        if name == "macros":
            continue
        for chat, messages in CHATS.items():
            yield probe(f"{name}/{chat}", template, {"messages": messages, "add_generation_prompt": True})
        yield probe(f"{name}/no prompt", template, {"messages": CHATS["system"], "add_generation_prompt": False})
    for chat in ("user", "tools"):
        given = {"messages": CHATS[chat], "add_generation_prompt": True, "tools": [WEATHER, WEATHER]}
        for name in ("thinking", "headers"):
            yield probe(f"{name}/{chat} with tools", templates[name], given)
    yield probe("macros/tool", MACROS, {"messages": [], "add_generation_prompt": False, "tools": [WEATHER]})
    off = {"messages": CHATS["think"], "add_generation_prompt": True, "vars": {"enable_thinking": False}}
    yield probe("thinking/off", THINKING, off)
    for index, template in enumerate(FEATURES):
        given = {"messages": CHATS["system"], "add_generation_prompt": True, "vars": {"x": DATA}}
        yield probe(f"feature {index}", template, given) | {"template": template}


def main():
    fields = gguf.GGUFReader(sys.argv[1]).fields
    templates = named(fields["tokenizer.chat_template"].contents())
    lines = ",\n".join(json.dumps(one) for one in probes(templates))
    print(f'{{"templates": {json.dumps(templates, indent=1)},\n"probes": [\n{lines}\n]}}')


if __name__ == "__main__":
    main()
