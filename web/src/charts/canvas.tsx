import { useEffect, useRef, useState } from "preact/hooks";
import { theme } from "../theme.ts";

export interface Spot { x: number; y: number; text: string }

interface Props {
	label: string;
	height: number;
	draw(c: CanvasRenderingContext2D, width: number, height: number): void;
	spot?(x: number, y: number, width: number, height: number): string | null; // what is under the pointer
	on: unknown[]; // draws again when these change
}

// Canvas draws in the pixels of the screen, and again when its width changes.
export function Canvas(p: Props) {
	const at = useRef<HTMLCanvasElement>(null);
	const [tip, setTip] = useState<Spot | null>(null);
	const dark = theme.value;
	useEffect(() => {
		const canvas = at.current!;
		const draw = () => {
			const width = canvas.clientWidth, scale = devicePixelRatio || 1;
			canvas.width = width * scale;
			canvas.height = p.height * scale;
			const c = canvas.getContext("2d")!;
			c.scale(scale, scale);
			c.clearRect(0, 0, width, p.height);
			p.draw(c, width, p.height);
		};
		draw();
		const size = new ResizeObserver(draw);
		size.observe(canvas);
		return () => size.disconnect();
	}, [...p.on, p.height, dark]);
	const move = (e: MouseEvent) => {
		const box = at.current!.getBoundingClientRect();
		const x = e.clientX - box.left, y = e.clientY - box.top;
		const text = p.spot?.(x, y, box.width, box.height);
		setTip(text ? { x, y, text } : null);
	};
	return (
		<figure class="chart" role="img" aria-label={p.label} onMouseMove={move} onMouseLeave={() => setTip(null)}>
			<canvas ref={at} style={{ height: `${p.height}px` }} />
			{tip && <div class="tip" style={{ left: `${Math.min(tip.x + 12, (at.current?.clientWidth ?? 300) - 200)}px`, top: `${tip.y + 14}px` }}>{tip.text}</div>}
		</figure>
	);
}

// clip shortens a text to a width.
export function clip(c: CanvasRenderingContext2D, text: string, width: number): string {
	if (c.measureText(text).width <= width) return text;
	let n = text.length;
	while (n > 1 && c.measureText(`${text.slice(0, n)}…`).width > width) n--;
	return `${text.slice(0, n)}…`;
}
