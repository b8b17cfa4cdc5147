// Numbers and times for people.

const si = ["", "k", "M", "G", "T", "P"];

// short writes a number with three digits and a prefix.
export function short(n: number, unit = ""): string {
	if (!Number.isFinite(n)) return "–";
	let i = 0, x = Math.abs(n);
	while (x >= 999.5 && i < si.length - 1) {
		x /= 1000;
		i++;
	}
	const digits = x === 0 || Number.isInteger(x) ? 0 : x >= 99.5 ? 0 : x >= 9.95 ? 1 : 2;
	const prefix = si[i]!;
	const gap = unit ? " " : prefix ? " " : "";
	return `${n < 0 ? "−" : ""}${x.toFixed(digits)}${gap}${prefix}${unit}`;
}

// nanoseconds as a delay.
export function delay(ns: number): string {
	if (!Number.isFinite(ns)) return "–";
	const x = Math.abs(ns), sign = ns < 0 ? "−" : "";
	if (x === 0) return "0";
	if (x < 1000) return `${sign}${Math.round(x)} ns`;
	if (x < 1e6) return `${sign}${digits3(x / 1e3)} µs`;
	if (x < 1e9) return `${sign}${digits3(x / 1e6)} ms`;
	return `${sign}${digits3(x / 1e9)} s`;
}

function digits3(x: number): string {
	return x >= 99.5 ? x.toFixed(0) : x >= 9.95 ? x.toFixed(1) : x.toFixed(2);
}

export function percent(share: number): string {
	if (!Number.isFinite(share)) return "–";
	const p = share * 100;
	if (p === 0 || p === 100) return `${p} %`;
	if (p < 0.01) return "< 0.01 %";
	if (p > 99.99) return "> 99.99 %";
	return `${p >= 10 && p < 99 ? p.toFixed(0) : p.toFixed(p < 1 ? 2 : 1)} %`;
}

const pad = (n: number) => String(n).padStart(2, "0");

// clock is a moment in the reader's zone, with its date where that is another day than today.
export function clock(t: number, now = Date.now() / 1000, withSeconds = true): string {
	const d = new Date(t * 1000), today = new Date(now * 1000);
	const time = `${pad(d.getHours())}:${pad(d.getMinutes())}${withSeconds ? `:${pad(d.getSeconds())}` : ""}`;
	if (d.toDateString() === today.toDateString()) return time;
	return `${d.getFullYear()}-${pad(d.getMonth() + 1)}-${pad(d.getDate())} ${time}`;
}

// ago says how long ago, in one unit.
export function ago(length: number): string {
	for (const [size, name] of [[86400, "d"], [3600, "h"], [60, "min"]] as const) {
		if (length >= size * 1.5) return `${Math.round(length / size)} ${name}`;
	}
	return `${Math.round(length)} s`;
}

// Measure is how values of a number are written: as rates where they add up.
export interface Measure { text(v: number): string; label: string; axis(v: number): string }

// measure is that of a number of rows; scale makes of a sum in a step what is written.
export function measure(unit: string, sum: boolean): Measure & { scale(sum: number, seconds: number): number } {
	if (unit === "ns") {
		return { text: delay, axis: delay, label: "delay", scale: (v) => v };
	}
	if (!sum) return { text: (v) => short(v), axis: (v) => short(v), label: "value", scale: (v) => v };
	if (unit === "bytes") {
		const text = (v: number) => short(v, "bit/s");
		return { text, axis: text, label: "rate", scale: (v, s) => (v * 8) / s };
	}
	const text = (v: number) => short(v, "/s");
	return { text, axis: text, label: "rate", scale: (v, s) => v / s };
}

// stamp is a coordinate with a decimal.
export function stamp(x: number): string {
	return x.toFixed(1);
}

// counted is how many there are of something that has a plural in s.
export const counted = (n: number, what: string) => `${short(n)} ${what}${n === 1 ? "" : "s"}`;
