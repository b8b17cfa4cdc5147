import { useEffect } from "preact/hooks";
import { get } from "../api.ts";
import { Lines } from "../charts/lines.tsx";
import { flowsCommand } from "../command.ts";
import { useData } from "../data.ts";
import { askFlow, askMore, type End, filterOfFlow, flagsOf, type FlowResult, type More, type Name, parseFlow } from "../flow.ts";
import { clock, delay, percent, short } from "../format.ts";
import { bindPage } from "../keys.ts";
import { interval } from "../live.ts";
import { copy, CopyButton } from "../parts/copy.tsx";
import { Failure, Notice, Waiting } from "../parts/notice.tsx";
import { RangePicker, rangeKeys, setRange } from "../parts/range.tsx";
import { Table } from "../parts/table.tsx";
import { href, params, view } from "../route.ts";
import type { Row, VerdictAnswer } from "../types.ts";
import { end } from "../verdicts.ts";
import { Lane } from "./lane.tsx";
import { Nodes } from "./nodes.tsx";

const since = "1h";
const text = (e: End) => end(e.addr, e.port ? Number(e.port) : undefined);

// Flow is one conversation: which way it takes, where it waits, what is lost.
export function Flow() {
	const name = parseFlow(view.value.path);
	useEffect(() => bindPage([
		...rangeKeys(since),
		{ keys: "c", doc: "copy the command", run: () => { const n = parseFlow(view.value.path); if (n) void copy(command(n), "the command"); } },
		{ keys: "y", doc: "copy the link", run: () => void copy(location.href, "the link") },
	]), []);
	if (!name) return <Notice kind="error" title="This is no flow">Write /flow/tcp/[2001:db8::1]:52880/[2001:db8::2]:443, or choose one in <a href="/explore?by=conversation">Explore</a></Notice>;
	return <Conversation key={view.value.path} name={name} />;
}

const command = (n: Name) => flowsCommand({ filter: filterOfFlow(n), by: "netns,iface,direction,src", everywhere: true, since: params.value.since ?? since, until: params.value.until });

function Conversation(p: { name: Name }) {
	const n = p.name, { since: from = since, until = "" } = params.value;
	const tick = until ? "" : interval.value?.to ?? "";
	const key = `${view.value.path} ${from} ${until}`;
	const loaded = useData(`${key} ${tick}`, (s) => askFlow(n, from, until, s));
	// The verdict asks more of the history than all else, and comes after the path.
	const why = useData(loaded.value ? `why ${key}` : "", (s) => get<VerdictAnswer>("/api/v1/why", { filter: filterOfFlow(n), since: from, until }, s));
	const r = loaded.value;
	const more = useData(r ? `${key} ${r.answer.to ?? ""}` : "", (s) => askMore(n, from, until, r!, s));
	return (
		<div class="page flow">
			<div class="headline">
				<h1><span class="muted">{n.proto}</span> {text(n.a)} <span class="muted">⇄</span> {text(n.b)}</h1>
				<RangePicker fallback={since} />
				<CopyButton text={command(n)} what="the command" label="Copy as command" />
				<a class="button" href={href("/explore", { where: filterOfFlow(n), by: "flow", since: from, until })}>Explore</a>
			</div>
			<Failure of={loaded} />
			{why.value && <p class={`judgement ${why.value.verdicts[0]?.severity ?? "fine"}`}>{why.value.verdicts[0]?.text ?? why.value.summary}</p>}
			<Failure of={more} />
			{r ? <Parts of={r} more={more.value} name={n} /> : loaded.loading && <Waiting what="Asking the agent" />}
		</div>
	);
}

function Parts(p: { of: FlowResult; more?: More; name: Name }) {
	const { of: r, more, name: n } = p;
	if (!r.whole) {
		return <Notice title="This flow was not seen in this time">{r.answer.from && `Searched: ${clock(r.range.from)} – ${clock(r.range.to)}. `}Choose a longer time, or see <a href={href("/explore", { where: `host ${n.a.addr} and host ${n.b.addr}`, by: "conversation", since: "24h" })}>all conversations of the two hosts</a></Notice>;
	}
	return (
		<>
			<section class="card" aria-label="Path of the flow">
				<h2>Path</h2>
				<Lane from={text(n.a)} to={text(n.b)} hops={r.ways[0]} title="There" />
				<Lane from={text(n.b)} to={text(n.a)} hops={r.ways[1]} title="Back" marks={r.whole.pdm} />
				{more?.traced && <Nodes of={more.traced} />}
			</section>
			<div class="halves">
				<Delays of={r} peer={n.b.addr} />
				<Facts of={r} more={more} />
			</div>
			<Timelines of={r} more={more} name={n} />
			{more && <Records rows={more.records} />}
		</>
	);
}

// Delays shows how much of an answer's time is the server's, and how much the network's.
function Delays(p: { of: FlowResult; peer: string }) {
	const { serverDelays: s, networkDelays: w } = p.of;
	if (!s || !w) {
		return (
			<section class="card" aria-label="Server or network">
				<h2>Server or network</h2>
				<Notice title="This flow carries no PDM marks">
					{p.of.whole?.rtt?.handshake_ns ? `The handshake took ${delay(p.of.whole.rtt.handshake_ns)}: ${delay(p.of.whole.rtt.responder_ns ?? 0)} to the server, ${delay(p.of.whole.rtt.initiator_ns ?? 0)} to the client. ` : ""}
					To divide the time of each answer of a flow over IPv6, mark it: in the configuration of both hosts, with the other host's address,
					<pre>{`pdm:\n  policies:\n    - {to: "${p.peer.includes(":") ? p.peer : "2001:db8::1"}/128", proto: tcp, for: 1h}`}</pre>
				</Notice>
			</section>
		);
	}
	const most = s.p99 + w.p99;
	const bar = (name: "p50" | "p90" | "p99") => (
		<tr key={name}>
			<th scope="row">{name}</th>
			<td class="bars"><span class="server" style={{ width: `${(100 * s[name]) / most}%` }} /><span class="network" style={{ width: `${(100 * w[name]) / most}%` }} /></td>
			<td class="right">{delay(s[name])}</td><td class="right">{delay(w[name])}</td>
		</tr>
	);
	return (
		<section class="card" aria-label="Server or network">
			<h2>{s.p50 > w.p50 ? `The server takes ${percent(s.p50 / (s.p50 + w.p50))} of the time` : `The network takes ${percent(w.p50 / (s.p50 + w.p50))} of the time`}</h2>
			<table class="compact delays">
				<caption class="hidden">Delays at the server and on the network</caption>
				<thead><tr><th scope="col">of answers</th><th scope="col"><span class="hidden">Shares</span></th><th scope="col" class="right"><i class="mark server" />server</th><th scope="col" class="right"><i class="mark network" />network</th></tr></thead>
				<tbody>{(["p50", "p90", "p99"] as const).map(bar)}</tbody>
			</table>
			<p class="hint">{short(s.count)} answers, from PDM marks</p>
		</section>
	);
}

function Facts(p: { of: FlowResult; more?: More }) {
	const w = p.of.whole!;
	const facts: [string, string][] = [
		["Packets", `${short(w.packets ?? 0)}, of these ${short(w.back?.packets ?? 0)} back`],
		["Bytes", `${short(w.bytes ?? 0, "B")}, of these ${short(w.back?.bytes ?? 0, "B")} back`],
		["First, last", `${clock(Date.parse(w.first ?? "") / 1000)} – ${clock(Date.parse(w.last ?? "") / 1000)}`],
		["Began by", w.initiator ? `${w.initiator === "src" ? end(w.src ?? "", w.sport) : end(w.dst ?? "", w.dport)} (${w.initiator_by ?? "unknown"})` : "not known"],
		...(w.tcp_flags ? [["TCP flags", flagsOf(w.tcp_flags).join(" ")] as [string, string]] : []),
		...(w.rtt?.handshake_ns ? [["Handshake", `${delay(w.rtt.handshake_ns)}: server ${delay(w.rtt.responder_ns ?? 0)}, client ${delay(w.rtt.initiator_ns ?? 0)}`] as [string, string]] : []),
		...(w.pdm ? [["Marks", `${short(w.pdm.sent ?? 0)} sent, ${short(w.pdm.received ?? 0)} received, ${w.pdm.lost ?? 0} lost, ${w.pdm.reordered ?? 0} reordered`] as [string, string]] : []),
		...(p.more?.traced ? [["IOAM path", `${p.more.traced.nodes ?? ""} (${p.more.traced.path})`] as [string, string]] : []),
		["Dropped", w.drops?.packets ? (p.more?.drops ?? []).map((d) => `${short(d.drops?.packets ?? 0)} packets: ${d.drops?.by ?? `rule ${d.drops?.rule ?? ""}`}`).join("; ") : "nothing, by rules of the gate"],
	];
	return <section class="card" aria-label="Facts"><h2>Facts</h2><dl class="facts">{facts.map(([k, v]) => <div key={k}><dt>{k}</dt><dd>{v}</dd></div>)}</dl></section>;
}

function Timelines(p: { of: FlowResult; more?: More; name: Name }) {
	const { of: r, more, name: n } = p;
	const zoom = (from: number, to: number) => setRange({ from, to });
	const [there, back] = r.rates;
	return (
		<>
			{more?.server && more.network && (
				<section class="card" aria-label="Server and network over time">
					<h2>Server and network over time, median of each {r.step} s</h2>
					<Lines label="Median delay at the server and on the network over time" times={r.times} series={[more.server, more.network]} stack={false} text={delay} height={200} onZoom={zoom} />
				</section>
			)}
			<section class="card" aria-label="Rate over time">
				<h2>Rate, {text(n.a)} up, {text(n.b)} down</h2>
				<Lines
					label="Rate of both directions over time" times={r.times} series={there ? [{ ...there, label: `from ${text(n.a)}` }] : []} back={back ? [{ ...back, label: `from ${text(n.b)}`, of: 1 }] : []}
					stack text={(v) => short(v, "bit/s")} height={200} onZoom={zoom}
				/>
			</section>
		</>
	);
}

function Records(p: { rows: Row[] }) {
	const place = (r: Row) => `${r.netns ? `${r.netns}/` : ""}${r.iface ?? ""} ${r.direction ?? ""}`;
	return (
		<section class="card" aria-label="Records">
			<h2>Records, newest first</h2>
			<Table
				caption="Records of the flow" rows={p.rows} id={(r) => `${r.time} ${place(r)} ${r.src} ${r.sport}`}
				columns={[
					{ name: "time", title: "begin of the step", cell: (r) => clock(Date.parse(r.time ?? "") / 1000) },
					{ name: "at", title: "interface and direction", cell: place },
					{ name: "from", title: "source", cell: (r) => end(r.src ?? "", r.sport) },
					{ name: "packets", title: "packets", right: true, cell: (r) => short(r.packets ?? 0) },
					{ name: "bytes", title: "IP bytes", right: true, cell: (r) => short(r.bytes ?? 0) },
					{ name: "ttl", title: "hop limit, least and most", right: true, narrow: true, cell: (r) => (r.ttl_min === r.ttl_max ? String(r.ttl_max ?? "") : `${r.ttl_min}–${r.ttl_max}`) },
					{ name: "flags", title: "TCP flags of all packets", narrow: true, cell: (r) => flagsOf(r.tcp_flags ?? 0).join(" ") },
					{ name: "server", title: "median server delay", right: true, cell: (r) => (r.pdm?.server?.p50_ns ? delay(r.pdm.server.p50_ns) : "") },
					{ name: "lost", title: "packets of the peer that did not come, by PDM", right: true, cell: (r) => String(r.pdm?.lost || "") },
					{ name: "drops", title: "packets that rules dropped", right: true, cell: (r) => String(r.drops?.packets ?? "") },
				]}
			/>
		</section>
	);
}
