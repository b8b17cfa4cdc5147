import { useEffect, useRef } from "preact/hooks";
import uPlot from "uplot";
import { clock } from "../format.ts";
import { type Series, stacked } from "../series.ts";
import { colour, restColour, theme, token } from "../theme.ts";

export interface Drawn extends Series { rest?: boolean; dashed?: boolean; of?: number } // of: the line whose colour it has

interface Props {
	label: string; // what is shown, for those who see no picture
	times: number[];
	series: Drawn[];
	back?: Drawn[]; // the other direction, below the axis
	before?: (number | null)[]; // the total of the period before
	stack: boolean;
	text(v: number): string;
	height?: number;
	onZoom?(from: number, to: number): void;
}

interface Line { label: string; colour: string; values: (number | null)[]; data: (number | null)[]; fill: boolean; dashed: boolean }

// mix is a colour with as much of the background that lines stand out from areas.
function mix(of: string, share: number): string {
	return `color-mix(in srgb, ${of} ${share * 100}%, ${token("card")})`;
}

const inColour = (s: Drawn, i: number) => (s.rest ? restColour() : colour(s.of ?? i));

// layers are the lines as they are drawn: of a stack the sum of all first, behind the others.
function layers(p: Props): Line[] {
	const out: Line[] = [];
	const add = (list: Drawn[], sign: number) => {
		const sums = p.stack ? stacked(list) : list.map((s) => s.values);
		const drawn = list.map((s, i) => ({
			label: s.label, colour: inColour(s, i), values: s.values, fill: p.stack, dashed: !!s.dashed,
			data: sign < 0 ? sums[i]!.map((v) => (v === null ? null : -v)) : sums[i]!,
		}));
		out.push(...(p.stack ? drawn.reverse() : drawn));
	};
	add(p.series, 1);
	if (p.back) add(p.back, -1);
	if (p.before) out.push({ label: "period before, total", colour: token("text"), values: p.before, data: p.before, fill: false, dashed: true });
	return out;
}

function options(p: Props, all: Line[], width: number, tip: HTMLElement): uPlot.Options {
	const axis = { stroke: token("muted"), grid: { stroke: token("line"), width: 1 }, ticks: { stroke: token("line"), width: 1 }, font: "12px system-ui, sans-serif" };
	return {
		width, height: p.height ?? 260, legend: { show: false }, padding: [10, 22, 0, 0],
		cursor: { drag: { x: !!p.onZoom, y: false, setScale: false }, points: { size: 6 }, y: false },
		scales: { x: { time: true }, y: { range: (_u, low, high) => [Math.min(0, low * 1.05), high > 0 ? high * 1.08 : low < 0 ? 0 : 1] } },
		axes: [
			{ ...axis, space: 70, size: 34, values: (_u, ticks) => ticks.map((t) => clock(t, Date.now() / 1000, false).split(" ").pop()!) },
			{ ...axis, size: 86, values: (_u, ticks) => ticks.map((v) => p.text(Math.abs(v))) },
		],
		series: [{}, ...all.map((l) => ({
			label: l.label, stroke: l.colour, width: l.fill ? 1 : 1.75, fill: l.fill ? mix(l.colour, 0.55) : undefined,
			dash: l.dashed ? [5, 4] : undefined, points: { show: p.times.length < 3 }, spanGaps: false,
		}))],
		hooks: {
			setCursor: [(u) => point(u, p, all, tip)],
			setSelect: [(u) => {
				if (u.select.width > 4) p.onZoom?.(u.posToVal(u.select.left, "x"), u.posToVal(u.select.left + u.select.width, "x"));
			}],
		},
	};
}

// point shows the values under the pointer.
function point(u: uPlot, p: Props, all: Line[], tip: HTMLElement): void {
	const i = u.cursor.idx;
	if (i === null || i === undefined || (u.cursor.left ?? -1) < 0) {
		tip.hidden = true;
		return;
	}
	tip.replaceChildren();
	const head = document.createElement("div");
	head.className = "when";
	head.textContent = clock(p.times[i]!);
	tip.append(head);
	const rows = all.map((l) => ({ l, v: l.values[i] })).filter((x) => x.v !== null && x.v !== undefined && x.v !== 0);
	rows.sort((a, b) => Math.abs(b.v!) - Math.abs(a.v!));
	for (const { l, v } of rows.slice(0, 11)) {
		const row = document.createElement("div"), mark = document.createElement("i"), name = document.createElement("span"), value = document.createElement("b");
		mark.style.background = l.colour;
		name.textContent = l.label;
		value.textContent = p.text(v!);
		row.append(mark, name, value);
		tip.append(row);
	}
	tip.hidden = rows.length === 0;
	const left = u.bbox.left / devicePixelRatio + (u.cursor.left ?? 0);
	tip.style.left = `${left > u.width / 2 ? left - tip.offsetWidth - 14 : left + 14}px`;
	tip.style.top = "14px";
}

// Lines is a chart of lines, or of a stack of areas, over time.
export function Lines(p: Props) {
	const at = useRef<HTMLDivElement>(null), tip = useRef<HTMLDivElement>(null);
	const dark = theme.value;
	useEffect(() => {
		const div = at.current!;
		const all = layers(p);
		const chart = new uPlot(options(p, all, div.clientWidth, tip.current!), [p.times, ...all.map((l) => l.data)] as uPlot.AlignedData, div);
		const size = new ResizeObserver(() => chart.setSize({ width: div.clientWidth, height: p.height ?? 260 }));
		size.observe(div);
		return () => { size.disconnect(); chart.destroy(); };
	}, [p.times, p.series, p.back, p.before, p.stack, dark]);
	return (
		<figure class="chart" role="img" aria-label={p.label}>
			<div ref={at} class="plot" />
			<div ref={tip} class="tip" hidden />
		</figure>
	);
}
