import { useEffect } from "preact/hooks";
import { get } from "../api.ts";
import { Matrix } from "../charts/matrix.tsx";
import { useData } from "../data.ts";
import { clock, percent, short } from "../format.ts";
import { bindPage } from "../keys.ts";
import { interval, pause } from "../live.ts";
import { busiest, draw, isRed, most, type Picture, places, thickness } from "../map.ts";
import { CopyButton } from "../parts/copy.tsx";
import { Failure, Notice, Waiting } from "../parts/notice.tsx";
import { type Column, Table } from "../parts/table.tsx";
import { change, go, href, params } from "../route.ts";
import type { GraphNode, Topology, Use } from "../topology.ts";

// Map is what is connected with what: namespaces, interfaces, and who is on their links.
export function MapPage() {
	const { at = "", open = "", red } = params.value;
	const loaded = useData(`topology ${at} ${at ? "" : interval.value?.to ?? ""}`, (s) => get<Topology>("/api/v1/topology", { at }, s));
	useEffect(() => bindPage([{ keys: "x", doc: "only what is full or loses", run: () => change({ red: params.value.red ? undefined : "true" }) }]), []);
	const t = loaded.value;
	return (
		<div class="page map">
			<div class="headline">
				<h1>Map</h1>
				<p class="muted">{t && `State since ${clock(Date.parse(t.since) / 1000)}${at ? `, at ${clock(Date.parse(t.at) / 1000)}` : ""}.`}</p>
				<form class="bar" onSubmit={(e) => { e.preventDefault(); change({ at: String(new FormData(e.currentTarget).get("at") ?? "") || undefined }); }}>
					<label>at <input name="at" value={at} placeholder="now, 14:02, 1h" size={14} aria-label="Moment" /></label>
					<button type="submit">Show</button>
				</form>
				<button type="button" aria-pressed={red === "true"} onClick={() => change({ red: red ? undefined : "true" })}>Only red</button>
				<CopyButton text={`waymark topology${at ? ` --at '${at}'` : ""}`} what="waymark topology" label="Copy as command" />
			</div>
			{loaded.error?.status === 404 && !at ? <Notice title="This agent has no topology">Its version does not support it, or it could not be read yet: see the log of the agent.</Notice> : <Failure of={loaded} />}
			{t ? <Shown of={t} open={new Set(open.split(",").filter(Boolean))} red={red === "true"} /> : loaded.loading && <Waiting what="Asking the agent" />}
		</div>
	);
}

function Shown(p: { of: Topology; open: Set<string>; red: boolean }) {
	const t = p.of, picture = draw(t, p.open, p.red);
	if (p.red && picture.nodes === 0) return <Notice title="Nothing is red">No interface is full, drops packets or loses packets. <button type="button" class="link" onClick={() => change({ red: undefined })}>Show everything</button></Notice>;
	return (
		<>
			<section class="card" aria-label="Picture" onMouseEnter={() => pause(true)} onMouseLeave={() => pause(false)}>
				{picture.boxes.length > most ? <Between of={t} /> : <Drawing of={picture} open={p.open} />}
				{t.hidden ? <p class="hint">{t.hidden} more neighbours are not kept: topology.neighbours of the configuration</p> : null}
			</section>
			{t.ambiguous?.length ? <section class="card" aria-label="Ambiguous"><h2>Ambiguous</h2><p class="hint">What several hosts claim leads to no link.</p>
				<ul>{t.ambiguous.slice(0, 100).map((d) => <li key={`${d.kind} ${d.value}`}>{d.kind} {d.value}: {d.claims.map((c) => [c.host, c.netns, c.iface].filter(Boolean).join("/")).join(", ")}{d.more ? ` and ${d.more} more` : ""}</li>)}</ul></section> : null}
			<section class="card" aria-label="Interfaces"><h2>Interfaces and neighbours</h2><List of={t} red={p.red} /></section>
		</>
	);
}

function toggle(id: string, open: Set<string>): void {
	const next = new Set(open);
	if (!next.delete(id)) next.add(id);
	change({ open: [...next].sort().join(",") || undefined });
}

const nameOf = (n: GraphNode) => `${n.name}, ${n.link ?? n.kind}`;
const page = (n: GraphNode) => (n.kind === "interface" ? href("/explore", { where: `iface ${n.name}`, by: "conversation", since: "1h" }) : n.addresses?.[0] ? href("/explore", { where: `host ${n.addresses[0].split("/")[0]}`, by: "conversation", since: "1h" }) : "");

function Drawing(p: { of: Picture; open: Set<string> }) {
	const g = p.of;
	return (
		<div class="scroll" role="region" aria-label="Picture of the topology" tabIndex={0}>
			<svg class="topology" width={g.width} height={g.height} viewBox={`0 0 ${g.width} ${g.height}`} role="group" aria-label={`${g.nodes} interfaces and neighbours; the table below has them, too`}>
				{g.bands.map((b) => <g key={b.id}><rect class="band" x="4" y={b.y} width={g.width - 8} height={b.height} rx="12" /><text class="band-name" x="16" y={b.y + 20}>{b.title}</text></g>)}
				{g.lines.map((l) => <path key={`${l.from.id} ${l.to.id}`} class={`wire ${l.kind} ${l.red ? "red" : ""}`} d={l.path} stroke-width={thickness(l.use)} />)}
				{g.boxes.map((b) => {
					const label = b.node ? `${nameOf(b.node)}${b.red ? ", red" : ""}` : b.title;
					const openIt = () => (b.node ? page(b.node) && go(page(b.node)) : toggle(b.id.replace(/^closed /, ""), p.open));
					return (
						<g key={b.id} class={`node ${b.red ? "red" : ""} ${b.node && b.node.kind === "interface" && !b.node.up ? "down" : ""}`} role="link" tabIndex={0} onClick={openIt} onKeyDown={(e) => { if (e.key === "Enter") openIt(); }}>
							<title>{label}</title>
							<rect x={b.x} y={b.y} width={b.width} height={b.height} rx="8" />
							<text x={b.x + 10} y={b.y + 20}>{cut(b.title, 20)}</text>
							<text class="small" x={b.x + 10} y={b.y + 38}>{cut(b.use && busiest(b.use) >= 1 ? `${short(busiest(b.use), "bit/s")}${b.use.utilisation ? `, ${percent(b.use.utilisation)}` : ""}` : b.text, 25)}</text>
						</g>
					);
				})}
			</svg>
		</div>
	);
}

const cut = (text: string, n: number) => (text.length > n ? `${text.slice(0, n - 1)}…` : text);

// Between is how many connections there are between namespaces, where a picture would have too much in it.
function Between(p: { of: Topology }) {
	const at = new Map(p.of.nodes.map((n) => [n.id, n.kind === "neighbour" ? "on the links" : n.in ?? n.name]));
	const cells = new Map<string, { row: string; column: string; value: number }>();
	for (const e of p.of.edges) {
		const row = at.get(e.from) ?? "", column = at.get(e.to) ?? "", key = `${row}\u0000${column}`;
		const cell = cells.get(key) ?? { row, column, value: 0 };
		cell.value++;
		cells.set(key, cell);
	}
	return <><p class="hint">{places(p.of).length} interfaces and neighbours are too many for a picture: connections between namespaces.</p>
		<Matrix caption="Connections between namespaces" rowName="from" columnName="to" cells={[...cells.values()]} text={(v) => short(v)} /></>;
}

interface Item { node: GraphNode; use?: Use }

function List(p: { of: Topology; red: boolean }) {
	const uses = new Map(p.of.use?.map((u) => [u.id, u]));
	const items = places(p.of).map((node) => ({ node, use: uses.get(node.id) })).filter((i) => !p.red || isRed(i.use));
	items.sort((a, b) => Number(isRed(b.use)) - Number(isRed(a.use)) || busiest(b.use) - busiest(a.use) || a.node.id.localeCompare(b.node.id));
	return <Table caption="Interfaces and neighbours, red ones first" rows={items.slice(0, 500)} id={(i) => i.node.id} columns={columns} onOpen={(i) => { if (page(i.node)) go(page(i.node)); }} />;
}

const rate = (v?: number) => (v === undefined ? "" : short(v, "bit/s"));

const columns: Column<Item>[] = [
	{ name: "name", title: "interface or neighbour", cell: (i) => (page(i.node) ? <a href={page(i.node)}>{i.node.name}</a> : i.node.name) },
	{ name: "kind", title: "kind", cell: (i) => i.node.link ?? [i.node.kind, ...(i.node.known ?? [])].join(", ") },
	{ name: "in", title: "where it lies", cell: (i) => i.node.in?.replace(/^netns\//, "") ?? "" },
	{ name: "addresses", title: "of it", narrow: true, cell: (i) => i.node.addresses?.slice(0, 2).join(", ") ?? i.node.mac ?? "" },
	{ name: "in rate", title: "received", right: true, cell: (i) => rate(i.use?.rx_bits_per_second) },
	{ name: "out rate", title: "sent", right: true, cell: (i) => rate(i.use?.tx_bits_per_second) },
	{ name: "use", title: "of its speed", right: true, cell: (i) => (i.use?.utilisation ? percent(i.use.utilisation) : "") },
	{ name: "dropped", title: "packets a second", right: true, cell: (i) => (i.use ? short(i.use.rx_dropped_per_second + i.use.tx_dropped_per_second, "/s") : "") },
	{ name: "lost", title: "packets that did not arrive at the other end", right: true, cell: (i) => (i.use?.lost ? <span class={isRed(i.use) ? "flag" : ""}>{short(i.use.lost)}</span> : "") },
];
