import { get } from "../api.ts";
import { needReference, useData } from "../data.ts";
import { lines, times } from "../series.ts";
import { Spark } from "../charts/spark.tsx";
import type { Answer } from "../types.ts";
import { filterOf, kindName, number, type Verdict } from "../verdicts.ts";

// Evidence is the hour of what a verdict is about, as a line.
export function Evidence(p: { of: Verdict }) {
	const v = p.of, filter = filterOf(v), name = number[v.kind] ?? "packets";
	const doc = needReference()?.numbers.find((n) => n.name === name);
	const to = Math.floor(Date.parse(v.to) / 60000) * 60, from = to - 3600;
	const key = filter && doc ? `${filter} ${name} ${to}` : "";
	const loaded = useData(key, (s) => get<Answer>("/api/v1/flows", { filter, by: "family", step: "1m", since: "1h", sort: name }, s));
	if (!doc || !loaded.value) return <span class="spark" aria-hidden="true" />;
	const at = times(from, to + 60, 60);
	const all = lines(loaded.value.rows, [], at, (r) => doc.path.split(".").reduce<unknown>((o, k) => (o as Record<string, unknown> | undefined)?.[k], r) as number | undefined, doc.sum, () => "");
	return all[0] ? <Spark label={`${kindName(v.kind)}: ${doc.doc}, the last hour`} values={all[0].values} /> : null;
}
