# Answers the queries on stdin, a JSON list, as Go writes them. Output: a list of rows of numbers, and times in ms.
import json
import sys
import time

import duckdb

KINDS = {"number": int, "text": str, "bytes": bytes.fromhex}
connection = duckdb.connect()
connection.execute("SET threads = 1")
connection.execute("SET enable_progress_bar = false")
results = []
for query in json.load(sys.stdin):
    args = [KINDS[a["kind"]](a["value"]) for a in query["args"]]
    times = []
    for _ in range(query["times"]):
        began = time.perf_counter()
        rows = connection.execute(query["sql"], args).fetchall()
        times.append((time.perf_counter() - began) * 1000)
    results.append({"Rows": [[int(v or 0) for v in row] for row in rows], "Milliseconds": times})
json.dump(results, sys.stdout)
