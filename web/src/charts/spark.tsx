import { stamp } from "../format.ts";

// Spark is a line without axes, its last value marked.
export function Spark(p: { label: string; values: (number | null)[] }) {
	const known = p.values.map((v, i) => [i, v] as const).filter((x): x is readonly [number, number] => x[1] !== null);
	if (known.length < 2) return null;
	const most = Math.max(...known.map((k) => k[1]), 1e-9), width = 132, height = 34;
	const x = (i: number) => 2 + (i / Math.max(1, p.values.length - 1)) * (width - 8), y = (v: number) => height - 4 - (v / most) * (height - 9);
	const line = known.map(([i, v], n) => `${n ? "L" : "M"}${stamp(x(i))} ${stamp(y(v))}`).join("");
	const [lastI, lastV] = known[known.length - 1]!;
	return (
		<svg class="spark" viewBox={`0 0 ${width} ${height}`} width={width} height={height} role="img" aria-label={p.label}>
			<path class="area" d={`${line}L${stamp(x(lastI))} ${height - 2}L${stamp(x(known[0]![0]))} ${height - 2}Z`} />
			<path class="line" d={line} />
			<circle cx={x(lastI)} cy={y(lastV)} r="2.6" />
		</svg>
	);
}
