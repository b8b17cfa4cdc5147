import { signal } from "@preact/signals";
import { useState } from "preact/hooks";
import { get } from "../api.ts";
import { useData } from "../data.ts";
import { ago, clock, counted, delay, percent, short } from "../format.ts";
import { interval, pause } from "../live.ts";
import { CopyButton } from "../parts/copy.tsx";
import { Failure, Notice, Waiting } from "../parts/notice.tsx";
import type { AnswerVerdict, Matter, Status, Verdict } from "../verdicts.ts";
import { kindName, place, whereOf } from "../verdicts.ts";
import { Evidence } from "./evidence.tsx";
import { Traffic } from "./traffic.tsx";

// snoozed are verdicts that this reader does not want to see, until a time.
const snoozed = signal<Record<string, number>>(JSON.parse(localStorage.getItem("snoozed") ?? "{}") as Record<string, number>);
const idOf = (v: Verdict) => `${v.kind} ${place(v)}`;

function snooze(v: Verdict, hours: number): void {
	const now = Date.now();
	const rest = Object.fromEntries(Object.entries(snoozed.value).filter(([, t]) => t > now));
	snoozed.value = hours ? { ...rest, [idOf(v)]: now + hours * 3600e3 } : {};
	localStorage.setItem("snoozed", JSON.stringify(snoozed.value));
}

// Now answers: is anything wrong, and is it the network or a server?
export function Now() {
	const tick = interval.value?.to ?? "";
	const why = useData(`why ${tick}`, (s) => get<AnswerVerdict>("/api/v1/why", {}, s));
	const status = useData(`status ${tick}`, (s) => get<Status>("/api/v1/status", {}, s));
	return (
		<div class="page now">
			<section class="lead" onMouseEnter={() => pause(true)} onMouseLeave={() => pause(false)}>
				<Failure of={why} />
				{why.value ? <Verdicts of={why.value} /> : why.loading && <Waiting what="Examining the last 10 minutes" />}
			</section>
			{status.value && <Health of={status.value} />}
			<Traffic tick={tick} />
			{why.value && <Examined of={why.value.examined} />}
			<Failure of={status} />
		</div>
	);
}

function Verdicts(p: { of: AnswerVerdict }) {
	const now = Date.now();
	const list = p.of.verdicts.filter((v) => (snoozed.value[idOf(v)] ?? 0) < now);
	const hidden = p.of.verdicts.length - list.length;
	const when = p.of.from && p.of.to ? `${clock(Date.parse(p.of.from) / 1000)} – ${clock(Date.parse(p.of.to) / 1000)}` : "";
	if (!p.of.to) {
		return <Notice title="Nothing has been counted yet">The first scan interval has not ended. If this stays, see which interfaces are counted: <code>waymark status</code></Notice>;
	}
	return (
		<>
			<div class="headline">
				<h1>{list.length === 0 ? "Nothing stands out" : list.length === 1 ? "One thing is wrong" : `${list.length} things are wrong`}</h1>
				<p>{list.length === 0 ? p.of.summary : "Worst first."} <span class="muted">Examined: {when}{p.of.more > 0 && `; ${p.of.more} more`}</span>
					{hidden > 0 && <button type="button" class="link" onClick={() => snooze(p.of.verdicts[0]!, 0)}>{hidden} snoozed: show</button>}
				</p>
				<CopyButton text="waymark why" what="waymark why" label="Copy as command" />
			</div>
			<ol class="verdicts">{list.map((v) => <li key={idOf(v)}><Card of={v} /></li>)}</ol>
		</>
	);
}

function amount(v: Verdict, x: number): string {
	return v.unit === "s" ? delay(x * 1e9) : v.unit === "share" ? percent(x) : short(x);
}

function Card(p: { of: Verdict }) {
	const v = p.of;
	const [open, setOpen] = useState(false);
	return (
		<article class={`verdict ${v.severity}`} aria-label={`${kindName(v.kind)}, ${v.severity}`}>
			<div class="what">
				<p class="tags"><span class="severity">{v.severity}</span><span class="kind">{kindName(v.kind)}</span>{place(v) && <span class="place">{place(v)}</span>}</p>
				<h2>{v.text}</h2>
				<p class="doing">
					<a class="button" href={whereOf(v)}>Show the flows</a>
					{v.command && <CopyButton text={v.command} what={v.command} label="Copy command" />}
					<button type="button" class="small" aria-expanded={open} onClick={() => setOpen(!open)}>Why?</button>
					<button type="button" class="small" title="Hide it here for an hour" onClick={() => snooze(v, 1)}>Snooze 1 h</button>
				</p>
				{open && <Reasons of={v} amount={(x) => amount(v, x)} />}
			</div>
			<div class="figure">
				<b>{amount(v, v.value)}</b>
				<span>{v.measure}</span>
				{v.usual ? <span class="muted">usual: {amount(v, v.usual)}</span> : <span class="muted">threshold: {amount(v, v.threshold)}</span>}
				<Evidence of={v} />
			</div>
		</article>
	);
}

function Reasons(p: { of: Verdict; amount(x: number): string }) {
	const v = p.of;
	return (
		<dl class="reasons">
			<div><dt>Measured</dt><dd>{v.measure}: {p.amount(v.value)} of {short(v.samples)} samples, {clock(Date.parse(v.from) / 1000)} – {clock(Date.parse(v.to) / 1000)}</dd></div>
			<div><dt>Threshold</dt><dd>{p.amount(v.threshold)}{v.usual ? `; usual is ${p.amount(v.usual)}` : ""}. <a href={`/docs?find=${v.kind}`}>The rule</a></dd></div>
			{v.evidence?.map((e) => <div key={e}><dt>Evidence</dt><dd>{e}</dd></div>)}
			{v.consequences?.map((c) => <div key={c.text}><dt>Consequence</dt><dd>{c.text}</dd></div>)}
			{v.others ? <div><dt>Others</dt><dd>{v.others} more of this kind</dd></div> : null}
		</dl>
	);
}

// Health is how much of the traffic the answers are of.
function Health(p: { of: Status }) {
	const s = p.of;
	const worst = s.interfaces.filter((i) => i.iface_packets > 0).sort((a, b) => a.coverage - b.coverage)[0];
	const losses = s.losses.reduce((n, l) => n + l.count, 0) + s.exporters.reduce((n, e) => n + e.lost.reduce((m, l) => m + l.count, 0), 0);
	const failed = s.hooks.filter((h) => h.state === "failed").length;
	return (
		<section class="tiles" aria-label="How much is counted">
			<Tile href="/hosts" name="Coverage" value={worst ? percent(worst.coverage) : "–"} note={worst ? (worst.coverage >= 0.999 ? "of all packets on every interface" : `on ${worst.iface} ${worst.direction}`) : "no packet yet"} bad={!!worst && worst.coverage < 0.99} />
			<Tile href="/hosts" name="Interfaces" value={String(new Set(s.hooks.map((h) => `${h.netns ?? ""}/${h.iface}`)).size)} note={failed ? `${counted(failed, "hook")} failed` : `${counted(s.hooks.length, "hook")} attached`} bad={failed > 0} />
			<Tile href="/hosts" name="Live flows" value={short(s.table.live)} note={`of ${short(s.table.max_entries)} in the table`} bad={false} />
			<Tile href="/hosts" name="Lost" value={short(losses)} note={losses ? "records or packets, since the start" : "nothing, since the start"} bad={losses > 0} />
			<Tile href="/hosts" name="History" value={s.history ? ago((Date.parse(s.now) - Date.parse(s.history.oldest ?? s.now)) / 1000) : "memory"} note={s.history ? (s.history.reach_seconds ? `reaches back ${ago(s.history.reach_seconds)} at this rate` : `${short(s.history.bytes, "B")} on disk`) : "not kept on disk"} bad={!!s.history?.failing} />
		</section>
	);
}

function Tile(p: { name: string; value: string; note: string; bad: boolean; href: string }) {
	return <a class={`tile ${p.bad ? "bad" : ""}`} href={p.href}><span>{p.name}</span><b>{p.value}</b><em>{p.note}</em></a>;
}

// Examined says what was looked at: an answer without verdicts is worth as much as this list.
function Examined(p: { of: Matter[] }) {
	return (
		<section class="card examined" aria-label="What was examined">
			<h2>What was examined</h2>
			<ul>{p.of.map((m) => <li key={m.kind}><a href={`/docs?find=${m.kind}`}>{kindName(m.kind)}</a><span>{short(m.count)} {m.what}{m.note && <em> · {m.note}</em>}</span></li>)}</ul>
		</section>
	);
}

