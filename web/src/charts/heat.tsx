import { clock } from "../format.ts";
import type { Series } from "../series.ts";
import { shade, token } from "../theme.ts";
import { Canvas, clip } from "./canvas.tsx";

interface Props { label: string; times: number[]; series: Series[]; text(v: number): string }

const rowHeight = 26, axisHeight = 24;

const gutter = (width: number) => Math.min(230, width * 0.34);

// Heat shows a row for each group and a cell for each step: the darker, the more.
export function Heat(p: Props) {
	const most = Math.max(...p.series.flatMap((s) => s.values.map((v) => v ?? 0)), 1e-9);
	const height = p.series.length * rowHeight + axisHeight;
	const draw = (c: CanvasRenderingContext2D, width: number) => {
		const left = gutter(width), cell = (width - left) / p.times.length;
		c.font = "12px system-ui, sans-serif";
		c.textBaseline = "middle";
		p.series.forEach((s, row) => {
			const y = row * rowHeight;
			c.fillStyle = token("text");
			c.textAlign = "left";
			c.fillText(clip(c, s.label, left - 10), 0, y + rowHeight / 2);
			s.values.forEach((v, i) => {
				if (v === null) return;
				c.fillStyle = shade(v / most);
				c.fillRect(left + i * cell, y + 1, Math.max(1, cell + 0.4), rowHeight - 2);
			});
		});
		c.fillStyle = token("muted");
		const every = Math.ceil(p.times.length / Math.max(2, (width - left) / 90));
		p.times.forEach((t, i) => {
			if (i % every === 0 && left + i * cell < width - 34) c.fillText(clock(t, Date.now() / 1000, false).split(" ").pop()!, left + i * cell, height - axisHeight / 2);
		});
	};
	const spot = (x: number, y: number, width: number) => {
		const left = gutter(width);
		const s = p.series[Math.floor(y / rowHeight)], i = Math.floor(((x - left) / (width - left)) * p.times.length);
		const v = s?.values[i];
		return s && v !== null && v !== undefined && x >= left ? `${s.label} · ${clock(p.times[i]!)} · ${p.text(v)}` : null;
	};
	return <Canvas label={p.label} height={height} draw={draw} spot={spot} on={[p.times, p.series]} />;
}
