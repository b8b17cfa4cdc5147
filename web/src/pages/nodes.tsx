import { get } from "../api.ts";
import { useData } from "../data.ts";
import { delay, percent, short } from "../format.ts";
import { interval } from "../live.ts";
import type { Paths, Hop, Path, Row, Times } from "../types.ts";

// Nodes is the path that IOAM traces of the flow show: how long each node keeps packets, and how long each link takes. What
// takes longest stands out.
export function Nodes(p: { of: NonNullable<Row["ioam"]> }) {
	const loaded = useData(`paths ${p.of.path} ${interval.value?.to ?? ""}`, (s) => get<Paths>("/api/v1/paths", {}, s));
	const path = loaded.value?.paths.find((x) => x.id === p.of.path);
	const lost = p.of.lost ?? 0, all = lost + (p.of.received ?? 0);
	return (
		<>
			<h3>Nodes, by IOAM traces{all > 0 && <span class={`loss ${lost ? "flag" : ""}`}> {lost > 0 ? `${short(lost)} of ${short(all)} packets lost on the whole path, ${percent(lost / all)}` : `no loss, of ${short(all)} packets`}</span>}</h3>
			<div class="scroll" role="region" aria-label="Nodes of the path" tabIndex={0}>
				<ol class="lane nodes">{path ? hops(path) : (p.of.nodes ?? "").split("-").map((n, i) => <li key={i} class="hop">{i > 0 && <Link text="no times" />}<div class="box"><b>node {n}</b></div></li>)}</ol>
			</div>
			<p class="hint">{path ? <>Medians of the last two minutes, of all flows on path {path.id}.{path.overflow && " Traces had no space for all nodes: some may be missing."} <code>waymark paths {path.id}</code></> : loaded.loading ? "Asking for the times of its nodes" : "The agent does not keep times of this path any longer."}</p>
		</>
	);
}

const median = (t?: Times) => (t?.count ? t.p50_ns : undefined);

// hops has an edge to each node but the first, with the time from the node before.
function hops(p: Path) {
	const longest = Math.max(...p.hops.flatMap((h) => [median(h.transit) ?? 0, h.relative ? 0 : median(h.link) ?? 0]));
	const worst = (t?: Times) => median(t) !== undefined && longest > 0 && median(t) === longest;
	return p.hops.map((h, i) => {
		const before = p.hops[i - 1], took = median(before?.link);
		return (
			<li key={h.hop} class="hop">
				{before && <Link text={took === undefined ? "no time" : before.relative ? `${delay(took)}, relative` : delay(took)} bad={!before.relative && worst(before.link)} />}
				<div class={`box ${worst(h.transit) ? "longest" : ""}`}>
					<b>{nameOf(h)}</b>
					<span>{median(h.transit) === undefined ? "transit not measured" : `transit ${delay(median(h.transit)!)}`}</span>
					<span>{ports(h)}</span>
				</div>
			</li>
		);
	});
}

const nameOf = (h: Hop) => `node ${h.node_id ?? h.node_id_wide ?? `at hop ${h.hop}`}`;
const ports = (h: Hop) => [h.ingress !== undefined && `in ${h.ingress}`, h.egress !== undefined && `out ${h.egress}`].filter(Boolean).join(" · ");

function Link(p: { text: string; bad?: boolean }) {
	return <div class={`edge ${p.text.startsWith("no time") ? "dashed" : ""} ${p.bad ? "slow" : ""}`}><span>{p.text}</span></div>;
}
