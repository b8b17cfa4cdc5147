package inband_test

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/waymark-net/waymark/internal/inband"
)

// delays draws nanoseconds of every magnitude alike.
func delays() *rapid.Generator[uint64] {
	return rapid.Custom(func(t *rapid.T) uint64 {
		return rapid.Uint64().Draw(t, "ns") >> rapid.IntRange(0, 63).Draw(t, "shift")
	})
}

func TestBucketGolden(t *testing.T) {
	for _, c := range []struct {
		ns     uint64
		bucket int
	}{
		{0, 0},
		{1023, 0},
		{1024, 1},
		{1151, 1},
		{1152, 2},
		{2047, 8},
		{2048, 9},
		{1_000_000, 80},
		{20_000_000, 114},
		{50_000_000, 124},
		{1_000_000_000, 159},
		{60_000_000_000, 206},
		{60_129_542_143, 206},
		{60_129_542_144, 207},
		{math.MaxUint64, 207},
	} {
		if got := inband.Bucket(c.ns); got != c.bucket {
			t.Errorf("Bucket(%d) = %d, want %d", c.ns, got, c.bucket)
		}
	}
}

// The buckets cover everything, in order, without gaps.
func TestBucketBoundsAdjoin(t *testing.T) {
	next := uint64(0)
	for i := range inband.Buckets {
		from, to := inband.BucketBounds(i)
		if from != next || to <= from {
			t.Fatalf("bucket %d is [%d, %d) and the one before ends at %d", i, from, to, next)
		}
		if a, b := inband.Bucket(from), inband.Bucket(to-1); a != i || b != i {
			t.Fatalf("the ends of bucket %d are in %d and %d", i, a, b)
		}
		next = to
	}
	if next != math.MaxUint64 {
		t.Errorf("the last bucket ends at %d", next)
	}
}

func TestBucketIsMonotonic(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := delays().Draw(t, "a"), delays().Draw(t, "b")
		if inband.Bucket(min(a, b)) > inband.Bucket(max(a, b)) {
			t.Fatalf("%d is in a higher bucket than %d", min(a, b), max(a, b))
		}
	})
}

func histogramOf(ns []uint64) *inband.Histogram {
	var h inband.Histogram
	for _, v := range ns {
		h.Add(v)
	}
	return &h
}

func TestQuantileError(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ns := rapid.SliceOfN(rapid.Uint64Range(1024, 60_000_000_000), 1, 200).Draw(t, "delays")
		q := rapid.Float64Range(0, 1).Draw(t, "q")
		got := float64(histogramOf(ns).Quantile(q))
		slices.Sort(ns)
		rank := max(int(math.Ceil(q*float64(len(ns)))), 1)
		want := float64(ns[rank-1])
		if math.Abs(got-want) > want/17+1 {
			t.Fatalf("quantile %v is %v, want %v: off by %.1f %%", q, got, want, 100*math.Abs(got-want)/want)
		}
	})
}

func TestQuantileStaysInside(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := histogramOf(rapid.SliceOfN(delays(), 1, 50).Draw(t, "delays"))
		low, high := time.Duration(min(h.Min, math.MaxInt64)), time.Duration(min(h.Max, math.MaxInt64))
		before := low
		for q := 0.0; q <= 1; q += 0.05 {
			got := h.Quantile(q)
			if got < before || got > high {
				t.Fatalf("quantile %.2f is %v, the one before %v, all in [%v, %v]", q, got, before, low, high)
			}
			before = got
		}
		if h.Quantile(0) != low || h.Quantile(1) != high {
			t.Fatalf("the extremes are %v and %v, want %v and %v", h.Quantile(0), h.Quantile(1), low, high)
		}
	})
}

// One steady delay is reported exactly: the median of a service that takes 50 ms
// is not what its bucket says.
func TestQuantileOfSteadyDelay(t *testing.T) {
	h := histogramOf([]uint64{50_400_000, 50_400_000, 50_400_000})
	for _, q := range []float64{0, 0.5, 0.99, 1} {
		if got := h.Quantile(q); got != 50400*time.Microsecond {
			t.Errorf("quantile %v is %v", q, got)
		}
	}
	if h.Mean() != 50400*time.Microsecond {
		t.Errorf("mean %v", h.Mean())
	}
}

func TestEmptyHistogram(t *testing.T) {
	var h inband.Histogram
	if h.Quantile(0.5) != 0 || h.Mean() != 0 {
		t.Errorf("median %v, mean %v", h.Quantile(0.5), h.Mean())
	}
	h.Merge(&inband.Histogram{})
	h.AddCounters(0, 0, 0, 0, make([]uint32, inband.Buckets))
	if h != (inband.Histogram{}) {
		t.Errorf("%+v", h)
	}
}

// Merging histograms is the histogram of all delays; so is adding the kernel's
// counters, whatever was there before.
func TestMerge(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := rapid.SliceOfN(delays(), 0, 20).Draw(t, "a")
		b := rapid.SliceOfN(delays(), 0, 20).Draw(t, "b")
		want := histogramOf(slices.Concat(a, b))

		merged := histogramOf(a)
		merged.Merge(histogramOf(b))
		if d := cmp.Diff(want, merged); d != "" {
			t.Fatal(d)
		}

		kernel := histogramOf(b)
		counters := make([]uint32, inband.Buckets)
		for i, n := range kernel.Buckets {
			counters[i] = uint32(n)
		}
		added := histogramOf(a)
		added.AddCounters(kernel.Count, kernel.Sum, kernel.Min, kernel.Max, counters)
		if d := cmp.Diff(want, added); d != "" {
			t.Fatal(d)
		}
	})
}

func BenchmarkHistogramAdd(b *testing.B) {
	var h inband.Histogram
	for b.Loop() {
		h.Add(50_000_000)
	}
}
