import { type Line, type Question, type Result, isFold } from "../explore.ts";
import { percent, short } from "../format.ts";
import { keyNames, protocol } from "../names.ts";
import { type Column, Table } from "../parts/table.tsx";
import { change, go } from "../route.ts";
import { number, summary } from "../series.ts";
import { colour, restColour } from "../theme.ts";
import type { Row } from "../types.ts";
import { flowHref } from "../verdicts.ts";

interface Props { of: Result; q: Question; handshakes?: Map<string, Row>; onFilter(key: string, value: string, not: boolean): void }

// statsOf are what fits next to the keys.
const statsOf = (r: Result) => (r.by.length > 2 ? ["mean", "max", "last"] as const : ["min", "mean", "p95", "max", "last"] as const);

const isFlow = (by: string[]) => ["proto", "src", "sport", "dst", "dport"].every((k) => by.includes(k));

// open shows the conversation of a row, or the conversations in it.
function open(p: Props, l: Line): void {
	const v = (k: string) => l.keys[p.of.by.indexOf(k)] ?? "";
	if (isFlow(p.of.by)) go(flowHref(protocol(v("proto")), v("src"), Number(v("sport")), v("dst"), Number(v("dport"))));
	else p.of.by.forEach((k, i) => p.onFilter(k, l.keys[i]!, false));
}

// Answers is the table that the chart is made of.
export function Answers(p: Props) {
	const r = p.of, m = r.measure, sum = r.number.sum;
	const all = sum ? r.lines.reduce((n, l) => n + (number(l.row!, r.number.path) ?? 0), 0) : 0;
	const total = r.total ? r.total.reduce<number>((n, v) => n + (v ?? 0), 0) : 0;
	const share = (l: Line) => {
		const mine = l.all.reduce<number>((n, v) => n + (v ?? 0), 0);
		return total ? mine / total : all ? (number(l.row!, r.number.path) ?? 0) / all : NaN;
	};
	const columns: Column<Line>[] = [
		...r.by.map((key, i) => keyColumn(p, key, i)),
		...statsOf(r).map((name) => ({
			name, title: `${name} of the steps of time`, right: true, narrow: name !== "mean" && name !== "max", cell: (l: Line) => m.text(summary(l.all)[name]),
		})),
		{ name: "total", title: r.number.doc, right: true, cell: (l) => (sum ? short(number(l.row!, r.number.path) ?? 0, r.number.unit === "bytes" ? "B" : "") : m.text(number(l.row!, r.number.path) ?? NaN)) },
		...(sum ? [{ name: "share", title: "of everything that matches", right: true, cell: (l: Line) => <Share of={share(l)} /> }] : []),
		{ name: "packets", title: "packets of the group", right: true, sort: "packets", narrow: true, cell: (l) => short(l.row!.packets ?? 0) },
		{ name: "rtt", title: `mean round trip of TCP handshakes${p.handshakes || !r.number.counter ? "" : "; of a longer time, sort by it"}`, right: true, sort: "rtt", narrow: true, cell: (l) => delayOf(p.handshakes?.get(l.id) ?? l.row!) },
	];
	return (
		<>
			<p class="hint"><b>Click</b> a value to show only it, <b>Alt-click</b> to exclude it, <kbd>Enter</kbd> opens a row{p.q.show !== "sankey" && p.q.show !== "matrix" && ", drag on the chart to zoom"}.</p>
			<Table
				caption={`${r.number.doc} by ${r.by.join(", ")}`} columns={columns} rows={r.lines} id={(l) => l.id} sorted={p.q.sort}
				onSort={(sort) => change({ sort: sort === "bytes" ? undefined : sort })} onOpen={(l) => open(p, l)}
				foot={sum && r.total && <Foot of={r} columns={columns} total={total} />}
			/>
		</>
	);
}

const delayOf = (row: Row) => {
	const ns = number(row, "rtt.handshake_ns");
	return ns === undefined ? "" : `${(ns / 1e6).toFixed(ns < 1e7 ? 2 : 1)} ms`;
};

function keyColumn(p: Props, key: string, i: number): Column<Line> {
	const sorted = !isFold(p.q.by) && key === p.q.sort ? key : undefined;
	return {
		name: key, title: `the key ${key}`, sort: sorted,
		cell: (l) => {
			const value = l.keys[i]!;
			return (
				<>
					{i === 0 && <i class="mark" style={{ background: colour(p.of.lines.indexOf(l)) }} />}
					<button
						type="button" class="cell" title={`Show only ${value}; with Alt, exclude it`} onClick={(e) => p.onFilter(key, value, e.altKey)}
						onKeyDown={(e) => { if (e.key === "f" || e.key === "F") { e.preventDefault(); p.onFilter(key, value, e.key === "F"); } }}
					>{keyNames(p.of.by, l.keys)[i]}</button>
				</>
			);
		},
	};
}

function Share(p: { of: number }) {
	if (!Number.isFinite(p.of)) return null;
	return <span class="share"><i style={{ width: `${Math.min(100, p.of * 100).toFixed(1)}%` }} />{percent(p.of)}</span>;
}

// Foot has what the rows are not, and everything.
function Foot(p: { of: Result; columns: Column<Line>[]; total: number }) {
	const r = p.of, keys = r.by.length;
	const row = (name: string, values: (number | null)[], mark?: string) => {
		const s = summary(values), part = values.reduce<number>((n, v) => n + (v ?? 0), 0);
		return (
			<tr>
				<th scope="row" colSpan={keys}>{mark && <i class="mark" style={{ background: mark }} />}{name}</th>
				{statsOf(r).map((n) => <td key={n} class={`right ${n !== "mean" && n !== "max" ? "wide-only" : ""}`}>{r.measure.text(s[n])}</td>)}
				<td class="right">{short(part * r.step / (r.number.unit === "bytes" ? 8 : 1), r.number.unit === "bytes" ? "B" : "")}</td>
				<td class="right">{percent(p.total ? part / p.total : NaN)}</td>
				<td class="wide-only" /><td class="wide-only" />
			</tr>
		);
	};
	return <>{r.other && row("Other", r.other.values, restColour())}{row("Summed", r.total!)}</>;
}
