// Times of a query, as the command line writes them: a duration back from now, or a moment.

const units: [string, number][] = [["d", 86400], ["h", 3600], ["m", 60], ["s", 1]];

// seconds reads a duration such as 90s, 1h30m or 1d; NaN: it is none.
export function seconds(text: string): number {
	let rest = text, total = 0;
	if (!rest) return NaN;
	while (rest) {
		const m = /^(\d+(?:\.\d+)?)(d|h|m|s)/.exec(rest);
		if (!m) return NaN;
		total += Number(m[1]) * units.find((u) => u[0] === m[2])![1];
		rest = rest.slice(m[0].length);
	}
	return total;
}

// duration is the inverse of seconds.
export function duration(total: number): string {
	let rest = Math.round(total), text = "";
	for (const [name, size] of units) {
		const n = Math.floor(rest / size);
		if (n > 0) text += `${n}${name}`;
		rest -= n * size;
	}
	return text || "0s";
}

// moment is a time in seconds since 1970: of a duration back from now, or of a date with a time.
export function moment(text: string, now: number): number {
	const back = seconds(text);
	if (!Number.isNaN(back)) return now - back;
	const t = Date.parse(text);
	return Number.isNaN(t) ? NaN : t / 1000;
}

// iso writes a moment for a URL, to the second.
export function iso(t: number): string {
	return new Date(Math.round(t) * 1000).toISOString().replace(".000Z", "Z");
}

export interface Range { from: number; to: number }

// range is what a page shows; without until it ends now.
export function range(since: string, until: string, now: number): Range {
	const to = until ? moment(until, now) : now;
	const from = moment(since, now);
	return { from: Number.isNaN(from) ? now - 3600 : from, to: Number.isNaN(to) ? now : to };
}

const steps = [1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200, 21600, 86400];

// niceStep divides a time into at most so many parts of a length that people use.
export function niceStep(length: number, parts: number): number {
	return steps.find((s) => length / s <= parts) ?? steps[steps.length - 1]!;
}

// moved is the range that lies a number of lengths later.
export function moved(r: Range, lengths: number): Range {
	const by = (r.to - r.from) * lengths;
	return { from: r.from + by, to: r.to + by };
}

// zoomed is a range around the same middle, by a factor shorter.
export function zoomed(r: Range, factor: number): Range {
	const middle = (r.from + r.to) / 2, half = Math.max((r.to - r.from) / factor / 2, 5);
	return { from: middle - half, to: middle + half };
}
