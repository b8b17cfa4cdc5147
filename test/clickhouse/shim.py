"""A small HTTP server in front of chDB, which is ClickHouse's engine as a library: what a ClickHouse server does with a request, as far
as Waymark sends it. Arguments: directory of the data, port (0: any). It prints the port."""
import os
import re
import sys
import tempfile
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qsl, urlsplit

from chdb import session

data, port = sys.argv[1], int(sys.argv[2])
engine = session.Session(data)
engine.query("SET max_threads = 1, compile_expressions = 0, compile_aggregate_expressions = 0, compile_sort_description = 0")
lock = threading.Lock()
OURS = {"query", "wait_end_of_query", "enable_http_compression", "buffer_size"}
INSERT = re.compile(r"\s*(INSERT\s+INTO\s+\S+\s*(?:\([^)]*\))?)\s*FORMAT\s+(\w+)\s*$", re.S | re.I)
FORMAT = re.compile(r"\s+FORMAT\s+(\w+)\s*$", re.I)


def run(asked, body):
    settings = {k: v for k, v in asked.items() if k not in OURS and not k.startswith("param_")}
    params = {k[6:]: v for k, v in asked.items() if k.startswith("param_")}
    clause = ", ".join("%s = '%s'" % s for s in settings.items())
    clause = clause and " SETTINGS " + clause
    insert = INSERT.match(asked.get("query", ""))
    if insert:
        with tempfile.NamedTemporaryFile(dir=data) as f:
            f.write(body)
            f.flush()
            engine.query("%s FROM INFILE '%s' COMPRESSION 'none'%s FORMAT %s" % (insert[1], f.name, clause, insert[2]))
        return b""
    text = asked.get("query", "") + body.decode()
    form = FORMAT.search(text)
    text = FORMAT.sub("", text)
    answer = engine.query(text + clause, form[1] if form else "TabSeparated", params=params or None)
    return answer.bytes() if answer is not None else b""


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # headers and body in one segment: else the client delays its acknowledgement

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        try:
            with lock:
                status, answer = 200, run(dict(parse_qsl(urlsplit(self.path).query, keep_blank_values=True)), body)
        except Exception as e:
            status, answer = 500, str(e).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_):
        pass


server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
print(server.server_port, flush=True)
server.serve_forever()
