import { useEffect, useState } from "preact/hooks";
import { address } from "../api.ts";
import { curl, flowsCommand } from "../command.ts";
import { needReference, useData } from "../data.ts";
import { and, ask, asked, csv, defaults, handshakes, isFold, mostOfHandshakes, type Question, question, type Result, test } from "../explore.ts";
import { ago, clock, counted, short } from "../format.ts";
import { bindPage } from "../keys.ts";
import { interval, pause, waiting } from "../live.ts";
import { copy } from "../parts/copy.tsx";
import { FilterBox } from "../parts/filterbox.tsx";
import { Failure, Notice, Waiting } from "../parts/notice.tsx";
import { RangePicker, rangeKeys, setRange } from "../parts/range.tsx";
import { change, params } from "../route.ts";
import type { NumberDoc, Row } from "../types.ts";
import { Answers } from "./answers.tsx";
import { Charts, shows } from "./charts.tsx";

const fallback: NumberDoc = { name: "bytes", doc: "IP bytes", path: "bytes", unit: "bytes", sum: true, counter: true };

// Explore answers a question about any flows: a chart above the table that it is made of.
export function Explore() {
	const q = question(params.value);
	const doc = (q.sort === "bytes" ? fallback : needReference()?.numbers.find((n) => n.name === q.sort)) ?? null;
	const tick = q.until ? "" : interval.value?.to ?? "";
	const loaded = useData(doc || needReference() ? `${JSON.stringify(q)} ${tick}` : "", (s) => ask(q, doc ?? fallback, s));
	const r = loaded.value;
	const handshaken = useData(r?.number.counter && r.range.to - r.range.from <= mostOfHandshakes ? `${JSON.stringify(q)} ${r.answer.to ?? ""}` : "", (s) => handshakes(q, s));
	useEffect(() => bindPage([
		...rangeKeys(defaults.since),
		{ keys: "p", doc: "the period before, as a line", run: () => toggle("before") },
		{ keys: "b", doc: "both directions", run: () => toggle("both") },
		{ keys: "v", doc: "next kind of chart", run: nextShow },
		{ keys: "y", doc: "copy the link", run: () => void copy(location.href, "the link") },
		{ keys: "c", doc: "copy the command", run: () => void copy(flowsCommand(asked(question(params.value))), "the command") },
	]), []);
	return (
		<div class="page explore">
			<h1 class="hidden">Explore</h1>
			<div class="bar">
				<FilterBox value={q.where} onChange={(where) => change({ where: where || undefined })} />
				<RangePicker fallback={defaults.since} />
			</div>
			<Choices q={q} of={r} />
			<Failure of={loaded} />
			{(r || !loaded.error) && <section class="card" aria-busy={loaded.loading} onMouseEnter={() => pause(true)} onMouseLeave={() => pause(false)}>
				{r ? <Shown of={r} q={q} handshakes={handshaken.value} /> : loaded.loading && <Waiting what="Asking the agent" />}
			</section>}
		</div>
	);
}

function toggle(name: "before" | "both"): void {
	change({ [name]: params.value[name] === "true" ? undefined : "true" });
}

function nextShow(): void {
	const names = shows.map((s) => s.name), at = names.indexOf(params.value.show ?? defaults.show);
	const next = names[(at + 1) % names.length]!;
	change({ show: next === defaults.show ? undefined : next });
}

const keysOffered = ["service", "conversation", "pair", "peer", "src", "dst", "src/24/64", "dst/24/64", "src,dst", "src,dst,dport", "iface,direction", "proto", "in,out", "flow"];

// Choices are how the question is put.
function Choices(p: { q: Question; of?: Result }) {
	const { q } = p, ref = needReference();
	const [by, setBy] = useState(q.by);
	useEffect(() => setBy(q.by), [q.by]);
	return (
		<div class="bar choices">
			<label>by <input list="keys" value={by} size={Math.max(14, by.length + 1)} spellcheck={false} aria-label="Group by" onInput={(e) => setBy(e.currentTarget.value)}
				onChange={(e) => change({ by: e.currentTarget.value || undefined })} /></label>
			<datalist id="keys">{[...keysOffered, ...(ref?.keys.map((k) => k.name) ?? [])].filter((k, i, all) => all.indexOf(k) === i).map((k) => <option key={k} value={k} />)}</datalist>
			<label>sort <select value={q.sort} aria-label="Number that is shown and sorted by" onChange={(e) => change({ sort: e.currentTarget.value === "bytes" ? undefined : e.currentTarget.value })}>
				{(ref?.numbers ?? [fallback]).map((n) => <option key={n.name} value={n.name}>{n.name}</option>)}
			</select></label>
			<label>limit <select value={String(q.limit)} aria-label="Groups" onChange={(e) => change({ limit: e.currentTarget.value === defaults.limit ? undefined : e.currentTarget.value })}>
				{["5", "10", "20", "50"].map((n) => <option key={n} value={n}>{n}</option>)}
			</select></label>
			<div class="segments" role="group" aria-label="Kind of chart">
				{shows.map((s) => <button key={s.name} type="button" aria-pressed={q.show === s.name} onClick={() => change({ show: s.name === defaults.show ? undefined : s.name })}>{s.title}</button>)}
			</div>
			<label class="check"><input type="checkbox" checked={q.before} disabled={p.of?.number.sum === false} onChange={() => toggle("before")} /> period before</label>
			<label class="check"><input type="checkbox" checked={q.both} onChange={() => toggle("both")} /> both directions</label>
			<Copies q={q} of={p.of} />
		</div>
	);
}

function Copies(p: { q: Question; of?: Result }) {
	const a = asked(p.q);
	const save = (text: string, name: string, type: string) => {
		const link = document.createElement("a");
		link.href = URL.createObjectURL(new Blob([text], { type }));
		link.download = name;
		link.click();
		URL.revokeObjectURL(link.href);
	};
	return (
		<details class="menu">
			<summary>Copy as…</summary>
			<div class="pop">
				<button type="button" onClick={() => void copy(location.href, "the link")}>Link <kbd>y</kbd></button>
				<button type="button" onClick={() => void copy(flowsCommand(a), "the command")}>waymark flows <kbd>c</kbd></button>
				<button type="button" onClick={() => void copy(curl(location.origin, "/api/v1/flows", a), "curl")}>curl</button>
				<button type="button" disabled={!p.of} onClick={() => save(csv(p.of!), "flows.csv", "text/csv")}>Save CSV</button>
				<a class="button" href={address("/api/v1/flows", { ...a, limit: 0 })} download="flows.json">Save all as JSON</a>
			</div>
		</details>
	);
}

function Shown(p: { of: Result; q: Question; handshakes?: Map<string, Row> }) {
	const { of: r, q } = p;
	if (r.answer.rows.length === 0) return <Empty of={r} q={q} />;
	const folded = isFold(q.by);
	const filter = (key: string, value: string, not: boolean) => {
		const t = test(key, value, folded);
		if (t) change({ where: and(q.where, not ? `not ${t}` : t) });
	};
	return (
		<>
			<Coverage of={r} />
			<Charts of={r} q={q} onZoom={(from, to) => setRange({ from, to })} />
			<Answers of={r} q={q} handshakes={p.handshakes} onFilter={filter} />
		</>
	);
}

// Coverage says what the answer is of.
function Coverage(p: { of: Result }) {
	const a = p.of.answer, r = p.of;
	return (
		<div class="coverage">
			<span>{counted(a.groups, "group")} of {counted(a.records, "record")}</span>
			<span>{clock(r.range.from)} – {clock(r.range.to)} in steps of {ago(r.step)}</span>
			{a.incomplete && <span class="flag">history begins {clock(Date.parse(a.from!) / 1000)}</span>}
			{a.partial && <span class="flag">partial: {a.partial}</span>}
			{a.each_host && <span class="flag">{a.each_host}</span>}
			{a.shared_flows && <span>{counted(a.shared_flows, "flow")} of several hosts, each counted once</span>}
			{a.lost ? <span class="flag">missing: {counted(a.lost, "interval")}</span> : null}
			{waiting.value > 0 && <span class="flag">{waiting.value} newer</span>}
		</div>
	);
}

function Empty(p: { of: Result; q: Question }) {
	const a = p.of.answer, q = p.q;
	if (!a.to) return <Notice title="Nothing was counted in this time">{a.oldest && a.incomplete ? `The oldest record is of ${clock(Date.parse(a.oldest) / 1000)}.` : a.incomplete ? "The agent has counted only since it started." : "No scan interval ended in it."} <button type="button" class="link" onClick={() => change({ since: undefined, until: undefined })}>Show the last hour</button></Notice>;
	const shorter = q.where.includes(" and ") ? q.where.slice(0, q.where.lastIndexOf(" and ")) : "";
	return (
		<Notice title="No flow matches the filter">
			{short(a.intervals)} intervals from {clock(Date.parse(a.from!) / 1000)} to {clock(Date.parse(a.to) / 1000)} were searched.{" "}
			{shorter && <button type="button" class="link" onClick={() => change({ where: shorter })}>Try: {shorter}</button>}{" "}
			<button type="button" class="link" onClick={() => change({ where: undefined })}>Show all flows</button>{" "}
			<button type="button" class="link" onClick={() => change({ since: "24h", until: undefined })}>Search 24 hours</button>
		</Notice>
	);
}
