// Where everything is in the picture of the topology. The agent gives each node a column (tier) and an order, which are made
// of names alone: the same graph is the same picture.
import type { Edge, GraphNode, Topology, Use } from "./topology.ts";

export const most = 150; // nodes in a picture; of more there is a matrix
const collapseFrom = 60; // nodes, from which on namespaces are closed until they are opened

const width = 176, height = 50, gapX = 58, gapY = 14, head = 30, pad = 16;

export interface Box { id: string; node?: GraphNode; title: string; text: string; x: number; y: number; width: number; height: number; use?: Use; red: boolean; closed?: number }
export interface Band { id: string; title: string; y: number; height: number; closed: boolean }
export interface Line { from: Box; to: Box; kind: string; use?: Use; red: boolean; path: string }
export interface Picture { width: number; height: number; boxes: Box[]; bands: Band[]; lines: Line[]; nodes: number }

// isRed says whether an interface is full, drops or loses.
export function isRed(u?: Use): boolean {
	return !!u && ((u.utilisation ?? 0) >= 0.9 || u.rx_dropped_per_second > 0 || u.tx_dropped_per_second > 0 || (u.lost ?? 0) > 0.001 * (u.sent ?? 0) + 2);
}

const outside = "";

function bandOf(n: GraphNode): string {
	return n.kind === "neighbour" || n.kind === "ioam" ? outside : n.in ?? outside;
}

// places are the nodes that have a place of their own: hosts and namespaces lie around them.
export const places = (t: Topology) => t.nodes.filter((n) => n.kind !== "host" && n.kind !== "netns");

// draw makes the picture; open are the namespaces that are shown with their interfaces though there are many.
export function draw(t: Topology, open: Set<string>, onlyRed: boolean): Picture {
	const uses = new Map(t.use?.map((u) => [u.id, u]));
	const all = places(t).filter((n) => !onlyRed || isRed(uses.get(n.id)));
	const many = all.length > collapseFrom;
	const names = new Map(t.nodes.map((n) => [n.id, n.name]));
	const hosts = new Set(t.nodes.filter((n) => n.kind === "host").map((n) => n.id));
	const rank = (id: string) => (id === outside ? 0 : hosts.has(id) ? 1 : 2); // from the network to the applications
	const groups = new Map<string, GraphNode[]>();
	for (const n of all) groups.set(bandOf(n), [...(groups.get(bandOf(n)) ?? []), n]);
	const order = [...groups.keys()].sort((a, b) => rank(a) - rank(b) || a.localeCompare(b));
	const p: Picture = { width: 0, height: pad, boxes: [], bands: [], lines: [], nodes: all.length };
	const at = new Map<string, Box>();
	for (const id of order) {
		const nodes = groups.get(id)!, closed = many && !open.has(id);
		const title = id === outside ? "On the links" : hosts.has(id) ? `Host ${names.get(id) ?? ""}` : `Namespace ${names.get(id) ?? id}`;
		const band = { id, title, y: p.height, height: 0, closed };
		const boxes = closed ? [summary(id, nodes, uses)] : nodes.map((n) => boxOf(n, uses.get(n.id)));
		band.height = head + stack(boxes, nodes, band.y + head, closed) + pad;
		for (const b of boxes) p.width = Math.max(p.width, b.x + b.width + pad);
		for (const n of nodes) at.set(n.id, closed ? boxes[0]! : boxes.find((b) => b.id === n.id)!);
		p.bands.push(band);
		p.boxes.push(...boxes);
		p.height += band.height + gapY;
	}
	p.lines = lines(t.edges, at, uses);
	return p;
}

function boxOf(n: GraphNode, use?: Use): Box {
	const text = n.addresses?.[0] ?? n.port ?? n.known?.join(", ") ?? n.mac ?? "";
	return { id: n.id, node: n, title: n.name, text, x: 0, y: 0, width, height, use, red: isRed(use) };
}

function summary(id: string, nodes: GraphNode[], uses: Map<string, Use>): Box {
	const red = nodes.some((n) => isRed(uses.get(n.id)));
	return { id: `closed ${id}`, title: `${nodes.length} ${id === outside ? "neighbours" : "interfaces"}`, text: red ? "some are full or lose" : "open to see them", x: pad, y: 0, width, height, red, closed: nodes.length };
}

// stack places boxes in their columns, one below the other, and returns the height of the highest column.
function stack(boxes: Box[], nodes: GraphNode[], top: number, closed: boolean): number {
	const used = new Map<number, number>();
	const sorted = closed ? boxes : [...boxes].sort((a, b) => a.node!.tier - b.node!.tier || a.node!.order - b.node!.order);
	for (const b of sorted) {
		const tier = closed ? Math.min(...nodes.map((n) => n.tier)) : b.node!.tier, n = used.get(tier) ?? 0;
		b.x = pad + tier * (width + gapX);
		b.y = top + n * (height + gapY);
		used.set(tier, n + 1);
	}
	return Math.max(0, ...used.values()) * (height + gapY);
}

function lines(edges: Edge[], at: Map<string, Box>, uses: Map<string, Use>): Line[] {
	const seen = new Set<string>(), out: Line[] = [];
	for (const e of edges) {
		const from = at.get(e.from), to = at.get(e.to), id = `${from?.id} ${to?.id}`;
		if (!from || !to || from === to || seen.has(id)) continue;
		seen.add(id);
		const use = uses.get(e.from) ?? uses.get(e.to);
		out.push({ from, to, kind: e.kind, use, red: isRed(uses.get(e.from)) || isRed(uses.get(e.to)), path: curve(from, to) });
	}
	return out;
}

// curve goes from the side of one box to the facing side of the other.
function curve(a: Box, b: Box): string {
	const y1 = a.y + a.height / 2, y2 = b.y + b.height / 2;
	if (a.x === b.x) {
		const x = a.x + a.width, out = x + 34;
		return `M${x} ${y1}C${out} ${y1} ${out} ${y2} ${x} ${y2}`;
	}
	const [x1, x2] = a.x < b.x ? [a.x + a.width, b.x] : [a.x, b.x + b.width], middle = (x1 + x2) / 2;
	return `M${x1} ${y1}C${middle} ${y1} ${middle} ${y2} ${x2} ${y2}`;
}

// busiest is the larger direction of an interface.
export const busiest = (u?: Use) => (u ? Math.max(u.rx_bits_per_second, u.tx_bits_per_second) : 0);

// thickness of a line grows with the logarithm of its rate.
export const thickness = (u?: Use) => 1.2 + Math.min(4.5, Math.max(0, Math.log10(busiest(u) + 1) - 3));
