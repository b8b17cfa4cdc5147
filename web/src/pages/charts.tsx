import { Heat } from "../charts/heat.tsx";
import { type Drawn, Lines } from "../charts/lines.tsx";
import { Matrix } from "../charts/matrix.tsx";
import { Sankey } from "../charts/sankey.tsx";
import { keyNames } from "../names.ts";
import { and, isFold, type Question, type Result, test } from "../explore.ts";
import { Notice } from "../parts/notice.tsx";
import { change } from "../route.ts";
import { number } from "../series.ts";

export const shows = [
	{ name: "stack", title: "Stack" }, { name: "lines", title: "Lines" }, { name: "heat", title: "Heat" },
	{ name: "sankey", title: "Sankey" }, { name: "matrix", title: "Matrix" },
];

interface Props { of: Result; q: Question; onZoom(from: number, to: number): void }

// Charts draws a result in the way that is asked for.
export function Charts(p: Props) {
	return (kinds[p.q.show] ?? OverTime)(p);
}

const kinds: Record<string, (p: Props) => preact.JSX.Element> = { heat: HeatMap, sankey: Flows, matrix: Pairs };

function OverTime(p: Props) {
	const { of: r, q } = p;
	const stack = q.show === "stack" && r.number.sum;
	const series: Drawn[] = r.lines.map((l) => ({ ...l }));
	if (r.other && stack) series.push({ ...r.other, rest: true });
	const back = r.back?.map((l) => ({ ...l, of: r.lines.findIndex((x) => x.id === l.id) }));
	return (
		<Lines
			label={`${r.number.doc} by ${r.by.join(", ")} over time; the table below has the values`} times={r.times} series={series} back={back}
			before={r.before} stack={stack} text={r.measure.text} onZoom={p.onZoom} height={300}
		/>
	);
}

function HeatMap(p: Props) {
	return <Heat label={`${p.of.number.doc} by ${p.of.by.join(", ")} and time; the table below has the values`} times={p.of.times} series={p.of.lines} text={p.of.measure.text} />;
}

const needsTwo = (what: string) => (
	<Notice title={`${what} needs two keys`}>
		Group by two or more, such as <button type="button" class="link" onClick={() => change({ by: "src,dst,dport" })}>src,dst,dport</button> or{" "}
		<button type="button" class="link" onClick={() => change({ by: "src/24/64,dst/24/64" })}>src/24/64,dst/24/64</button>
	</Notice>
);

const value = (r: Result, row: Result["answer"]["rows"][number]) => r.measure.scale(number(row, r.number.path) ?? 0, r.span);

function Flows(p: Props) {
	const r = p.of;
	if (r.by.length < 2) return needsTwo("A Sankey diagram");
	const paths = r.lines.map((l) => ({ steps: keyNames(r.by, l.keys), value: value(r, l.row!) }));
	return <Sankey label={`${r.number.doc} from ${r.by.join(" to ")}; the table below has the values`} columns={r.by} paths={paths} text={r.measure.text} />;
}

function Pairs(p: Props) {
	const r = p.of;
	if (r.by.length < 2) return needsTwo("A matrix");
	const [rowKey, columnKey] = [r.by[0]!, r.by.slice(1)];
	const cells = r.lines.map((l) => {
		const [row, ...column] = keyNames(r.by, l.keys);
		return { row: row!, column: column.join(" · "), value: value(r, l.row!), keys: l.keys };
	});
	const folded = isFold(p.q.by);
	return (
		<Matrix
			caption={`${r.number.doc}, ${rowKey} against ${columnKey.join(", ")}`} rowName={rowKey} columnName={columnKey.join(", ")} cells={cells} text={r.measure.text}
			onCell={(c) => {
				const keys = (c as (typeof cells)[number]).keys;
				change({ where: keys.reduce((w, k, i) => and(w, test(r.by[i]!, k, folded)), p.q.where), by: "conversation", show: undefined });
			}}
		/>
	);
}
