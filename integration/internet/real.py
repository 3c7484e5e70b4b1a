"""Servers as people run them, of Debian's packages: Flask behind gunicorn, Starlette behind uvicorn, and a reader of JSON in C.

`flask_app` and `starlette_app` are what gunicorn and uvicorn are told to serve. Each answer says what was served.
"""

import ctypes
import ctypes.util
import json
from urllib.parse import quote

from flask import Flask, redirect, request
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Mount, Route

flask_app = Flask(__name__)
flask_app.url_map.strict_slashes = False


@flask_app.route("/app/public/<path:rest>")
def public(rest):
    return f"PUBLIC {rest}\n"


@flask_app.route("/admin/<path:rest>")
def admin(rest):
    return f"ADMIN {rest}\n"


@flask_app.route("/exact")
def exact():
    return "EXACT\n"


@flask_app.route("/login/<where>")
def login(where):
    """What any login does with an address that it is to come back to: it is quoted into another one."""
    key = request.args.get("key", "")
    full = request.full_path
    return redirect({"path": "/in/" + quote(key), "next": "/in?next=" + quote(full), "twice": "/in?next=" + quote(quote(full, safe=""), safe="")}[where])


CJSON = ctypes.CDLL("libcjson.so.1")
CJSON.cJSON_Parse.restype = ctypes.c_void_p
CJSON.cJSON_GetObjectItem.restype = ctypes.c_void_p
CJSON.cJSON_GetObjectItem.argtypes = [ctypes.c_void_p, ctypes.c_char_p]
CJSON.cJSON_GetStringValue.restype = ctypes.c_char_p
CJSON.cJSON_GetStringValue.argtypes = [ctypes.c_void_p]


@flask_app.post("/mcp")
def mcp():
    """A server of MCP in C: a name ends before a NUL, and fields have no case."""
    params = CJSON.cJSON_GetObjectItem(CJSON.cJSON_Parse(request.get_data()), b"params")
    name = CJSON.cJSON_GetStringValue(CJSON.cJSON_GetObjectItem(params, b"name"))
    return {"jsonrpc": "2.0", "id": 1, "result": {"did": (name or b"").decode()}}


async def endpoint(asked):
    said = json.loads(await asked.body())
    return JSONResponse({"jsonrpc": "2.0", "id": 1, "result": {"did": said["params"]["name"]}})


starlette_app = Starlette(routes=[Mount("/mcp", routes=[Route("/", endpoint, methods=["POST"])])])
