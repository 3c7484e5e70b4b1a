#!/usr/bin/env python3
"""A model that always says the same: what agents are driven by where no real one can be reached.

    model.py PORT SCRIPT LOG CERTIFICATE KEY

Speaks the Anthropic Messages API, OpenAI's Responses and Chat Completions and Gemini's generateContent, streaming or not, over
TLS. SCRIPT is a JSON list of shell commands: each is a call of the shell tool that the agent offers, one after the other as the
agent brings the results back; then comes a last word. An agent without tools (aider) gets the change as text. Every result is one JSON line of LOG, and so is the key of every request for words. Standard
library only.
"""

import http.server
import json
import re
import socketserver
import ssl
import sys

SHELL = ("bash", "shell", "exec_command", "shell_command", "run_shell_command")
EDIT = """calc.js
```
<<<<<<< SEARCH
exports.add = (a, b) => a - b
=======
exports.add = (a, b) => a + b
>>>>>>> REPLACE
```
"""


def arguments_for(schema, command):
    """Arguments of a shell tool: what it calls the command, as text or as a list, and words for the rest that it needs."""
    properties = schema.get("properties", {})
    filled = {}
    for name in set(schema.get("required", [])) | {n for n in properties if n in ("command", "cmd")}:
        kind = properties.get(name, {}).get("type")
        if name in ("command", "cmd"):
            filled[name] = ["bash", "-c", command] if kind == "array" else command
        elif kind in ("number", "integer"):
            filled[name] = 60000
        elif kind == "boolean":
            filled[name] = False
        else:
            filled[name] = "the next step"
    return filled


def shell_of(tools):
    """Name and schema of the tool that runs commands; None where an agent asks for words alone."""
    for tool in tools:
        inner = tool.get("function", tool)
        if inner.get("name", "").lower() in SHELL:
            schema = inner.get("input_schema") or inner.get("parameters") or inner.get("parametersJsonSchema") or {}
            return inner["name"], schema
    return None


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_GET(self):
        self.answer({"data": [], "models": []})

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("content-length", "0")))
        try:
            request = json.loads(body or b"{}")
        except ValueError:
            request = {}
        path = self.path.split("?")[0]
        keys = [self.headers[name] for name in ("x-api-key", "authorization", "x-goog-api-key") if self.headers[name]]
        with open(LOG, "a") as log:
            log.write(json.dumps({"keys": keys, "path": path}) + "\n")
        if path.endswith("/messages"):
            self.anthropic(request)
        elif path.endswith("/responses"):
            self.openai(request)
        elif path.endswith("/chat/completions"):
            self.chat(request)
        elif "generateContent" in path.replace("streamGenerate", "generate") or path.endswith(":streamGenerateContent"):
            self.gemini(request, "stream" in path)
        elif path.endswith("/count_tokens"):
            self.answer({"input_tokens": 10})
        else:
            self.answer({})

    def step(self, tools, results):
        """The call that comes next, or None for the last word."""
        shell = shell_of(tools)
        if shell is None:
            return None
        if results:
            with open(LOG, "a") as log:
                log.write(json.dumps({"step": len(results), "said": results[-1]}) + "\n")
        if len(results) >= len(SCRIPT):
            return None
        name, schema = shell
        return name, arguments_for(schema, SCRIPT[len(results)]), f"call_{len(results)}"

    def anthropic(self, request):
        parts = [p for m in request.get("messages", []) if isinstance(m.get("content"), list) for p in m["content"]]
        results = [json.dumps(p.get("content")) for p in parts if p.get("type") == "tool_result"]
        call = self.step(request.get("tools") or [], results)
        if call is None:
            block, start, delta = {"type": "text", "text": "All done."}, {"type": "text", "text": ""}, {"type": "text_delta", "text": "All done."}
        else:
            name, arguments, ident = call
            block = {"type": "tool_use", "id": ident, "name": name, "input": arguments}
            start, delta = {**block, "input": {}}, {"type": "input_json_delta", "partial_json": json.dumps(arguments)}
        reason = "end_turn" if call is None else "tool_use"
        usage = {"input_tokens": 10, "output_tokens": 10}
        message = {"id": "msg_1", "type": "message", "role": "assistant", "model": request.get("model", "m"), "content": [],
                   "stop_reason": None, "stop_sequence": None, "usage": usage}
        if not request.get("stream"):
            return self.answer({**message, "content": [block], "stop_reason": reason})
        self.events([
            {"type": "message_start", "message": message},
            {"type": "content_block_start", "index": 0, "content_block": start},
            {"type": "content_block_delta", "index": 0, "delta": delta},
            {"type": "content_block_stop", "index": 0},
            {"type": "message_delta", "delta": {"stop_reason": reason, "stop_sequence": None}, "usage": usage},
            {"type": "message_stop"},
        ])

    def openai(self, request):
        items = request.get("input") if isinstance(request.get("input"), list) else []
        results = [json.dumps(i.get("output")) for i in items if str(i.get("type", "")).endswith("_call_output")]
        call = self.step(request.get("tools") or [], results)
        if call is None:
            item = {"type": "message", "role": "assistant", "id": "m1", "content": [{"type": "output_text", "text": "All done."}]}
        else:
            name, arguments, ident = call
            item = {"type": "function_call", "id": "f" + ident, "call_id": ident, "name": name, "arguments": json.dumps(arguments)}
        usage = {"input_tokens": 10, "output_tokens": 10, "total_tokens": 20,
                 "input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 0}}
        self.events([
            {"type": "response.created", "response": {"id": "r1"}},
            {"type": "response.output_item.done", "output_index": 0, "item": item},
            {"type": "response.completed", "response": {"id": "r1", "usage": usage, "output": [item]}},
        ])

    def chat(self, request):
        messages = request.get("messages", [])
        text = None
        if not request.get("tools"):
            text = self.words(json.dumps(messages[:1]), messages[-1].get("content") if messages else "")
        results = [json.dumps(m.get("content")) for m in messages if m.get("role") == "tool"]
        call = self.step(request.get("tools") or [], results)
        reason = "stop" if call is None else "tool_calls"
        if call is None:
            message = {"role": "assistant", "content": text or "All done."}
        else:
            name, arguments, ident = call
            function = {"name": name, "arguments": json.dumps(arguments)}
            message = {"role": "assistant", "content": None,
                       "tool_calls": [{"index": 0, "id": ident, "type": "function", "function": function}]}
        usage = {"prompt_tokens": 10, "completion_tokens": 10, "total_tokens": 20}
        head = {"id": "c1", "created": 1, "model": request.get("model", "m"), "usage": usage}
        if not request.get("stream"):
            choice = {"index": 0, "message": message, "finish_reason": reason}
            return self.answer({**head, "object": "chat.completion", "choices": [choice]})
        choices = [{"index": 0, "delta": message, "finish_reason": None}, {"index": 0, "delta": {}, "finish_reason": reason}]
        lines = [json.dumps({**head, "object": "chat.completion.chunk", "choices": [c]}) for c in choices]
        self.send("text/event-stream", "".join(f"data: {line}\n\n" for line in [*lines, "[DONE]"]).encode())

    def words(self, system, last):
        """For an agent without tools: the message of a commit, the change, or the last word on what its tests printed."""
        last = last if isinstance(last, str) else json.dumps(last)
        if "commit message" in system:
            return "add adds"
        names = [re.findall(r"echo ([\w-]+)", command)[-1] for command in SCRIPT]
        done = [name for name in names if re.search(rf"^{name}\b", last, re.MULTILINE)]
        if not done:
            return EDIT
        with open(LOG, "a") as log:
            log.write(json.dumps({"step": len(done), "said": last}) + "\n")
        return "All done."

    def gemini(self, request, stream):
        parts = [p for c in request.get("contents", []) for p in c.get("parts", [])]
        results = [json.dumps(p["functionResponse"].get("response")) for p in parts if "functionResponse" in p]
        tools = [d for t in request.get("tools") or [] for d in t.get("functionDeclarations", [])]
        call = self.step(tools, results)
        part = {"text": "All done."} if call is None else {"functionCall": {"name": call[0], "args": call[1]}}
        answer = {"candidates": [{"content": {"role": "model", "parts": [part]}, "finishReason": "STOP", "index": 0}],
                  "usageMetadata": {"promptTokenCount": 10, "candidatesTokenCount": 10, "totalTokenCount": 20}}
        if stream:
            self.send("text/event-stream", b"data: " + json.dumps(answer).encode() + b"\r\n\r\n")
        else:
            self.answer(answer)

    def events(self, events):
        lines = (f"event: {e['type']}\ndata: {json.dumps(e)}\n\n" for e in events)
        self.send("text/event-stream", "".join(lines).encode())

    def answer(self, value):
        self.send("application/json", json.dumps(value).encode())

    def send(self, kind, body):
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True


if __name__ == "__main__":
    port, script, LOG, certificate, key = sys.argv[1:]
    with open(script) as file:
        SCRIPT = json.load(file)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    with Server(("", int(port)), Handler) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
        server.serve_forever()
