import { sankey, sankeyLinkHorizontal, type SankeyGraph } from "d3-sankey";
import { colour, token } from "../theme.ts";
import { Canvas, clip } from "./canvas.tsx";

export interface Path { steps: string[]; value: number }

interface Node { name: string; column: number }
interface Link { value: number }
type Graph = SankeyGraph<Node, Link>;

// graph joins paths: a name in two columns is two nodes.
export function graph(paths: Path[]): { nodes: Node[]; links: { source: number; target: number; value: number }[] } {
	const nodes: Node[] = [], links = new Map<string, { source: number; target: number; value: number }>();
	const index = new Map<string, number>();
	const node = (name: string, column: number) => {
		const id = `${column}\u0000${name}`;
		if (!index.has(id)) index.set(id, nodes.push({ name, column }) - 1);
		return index.get(id)!;
	};
	for (const p of paths) {
		for (let i = 1; i < p.steps.length; i++) {
			const source = node(p.steps[i - 1]!, i - 1), target = node(p.steps[i]!, i), id = `${source} ${target}`;
			const link = links.get(id);
			if (link) link.value += p.value;
			else links.set(id, { source, target, value: p.value });
		}
	}
	return { nodes, links: [...links.values()] };
}

function layout(paths: Path[], width: number, height: number): Graph {
	const g = graph(paths.filter((p) => p.value > 0));
	return sankey<Node, Link>().nodeWidth(12).nodePadding(10).nodeAlign((n) => n.column)
		.extent([[1, 22], [width - 1, height - 6]])({ nodes: g.nodes.map((n) => ({ ...n })), links: g.links.map((l) => ({ ...l })) });
}

// Sankey shows how much goes from each value of one key to each of the next.
export function Sankey(p: { label: string; columns: string[]; paths: Path[]; text(v: number): string }) {
	const height = Math.max(280, Math.min(640, p.paths.length * 26));
	const draw = (c: CanvasRenderingContext2D, width: number) => {
		const g = layout(p.paths, width, height);
		const order = new Map(g.nodes.filter((n) => n.column === 0).map((n, i) => [n.index, i]));
		const tint = (l: Graph["links"][number]) => colour(order.get((l.source as Graph["nodes"][number]).index) ?? (l.source as Graph["nodes"][number]).index ?? 0);
		const path = sankeyLinkHorizontal<Node, Link>().context(c as never);
		for (const l of g.links) {
			c.beginPath();
			path(l);
			c.globalAlpha = 0.42;
			c.lineWidth = Math.max(1, l.width ?? 1);
			c.strokeStyle = tint(l);
			c.stroke();
		}
		c.globalAlpha = 1;
		c.font = "12px system-ui, sans-serif";
		c.textBaseline = "middle";
		const share = width / p.columns.length - 24;
		for (const n of g.nodes) {
			const x0 = n.x0!, x1 = n.x1!, y0 = n.y0!, y1 = n.y1!;
			c.fillStyle = order.has(n.index) ? colour(order.get(n.index)!) : token("muted");
			c.fillRect(x0, y0, x1 - x0, Math.max(1, y1 - y0));
			if (y1 - y0 < 9) continue;
			const last = n.column === p.columns.length - 1;
			c.textAlign = last ? "right" : "left";
			c.fillStyle = token("text");
			c.fillText(clip(c, `${n.name}  ${p.text(n.value ?? 0)}`, share), last ? x0 - 6 : x1 + 6, (y0 + y1) / 2);
		}
		c.fillStyle = token("muted");
		p.columns.forEach((name, i) => {
			c.textAlign = i === p.columns.length - 1 ? "right" : i === 0 ? "left" : "center";
			c.fillText(name, i === p.columns.length - 1 ? width - 1 : i === 0 ? 1 : (i * width) / (p.columns.length - 1), 9);
		});
	};
	return <Canvas label={p.label} height={height} draw={draw} on={[p.paths, p.columns.join()]} />;
}
