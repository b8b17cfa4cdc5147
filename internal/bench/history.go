package bench

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"os"
	"runtime"
	"time"

	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/query"
	"github.com/waymark-net/waymark/internal/store"
	"github.com/waymark-net/waymark/internal/store/disk"
	"github.com/waymark-net/waymark/test/duckdb"
)

// HistoryReport is what the records on disk cost, on one processor.
type HistoryReport struct {
	Run
	DuckDB   string         `json:"duckdb,omitempty"` // version that answers over the same files; empty: it is not installed
	Records  int            `json:"records"`
	Rate     float64        `json:"records_per_second"` // from the memory to sealed files
	PerRow   float64        `json:"bytes_per_record"`
	Queries  []HistoryQuery `json:"queries"`
	Budgets  []Budget       `json:"budgets"`
	Resident uint64         `json:"heap_bytes"` // after the records were written
	answers  []query.Answer
}

// HistoryQuery is how long an answer takes.
type HistoryQuery struct {
	Name         string `json:"name"`
	Groups       int    `json:"groups"`
	Records      uint64 `json:"records"` // that match
	Milliseconds Spread `json:"ms"`
	DuckDB       Spread `json:"duckdb_ms,omitzero"`
}

// Limits of the design.
const (
	limitIngest = 0.5e6 // records a second
	limitPerRow = 45    // bytes
)

var historyBegin = time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC)

// History writes records of 24 hours, and asks for some of them.
func History(ctx context.Context, cfg Config) (*HistoryReport, error) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	run, err := begin("history", cfg)
	if err != nil {
		return nil, err
	}
	r := &HistoryReport{Run: run, Records: 5_000_000}
	if cfg.Quick {
		r.Records = 500_000
	}
	dir, err := os.MkdirTemp("", "waymark-bench-history-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	s, err := disk.Open(disk.Config{Path: dir, Size: 1 << 40}, disk.Deps{
		Origin: flow.Origin{Host: "bench", Sampling: 1}, Log: slog.New(slog.DiscardHandler), Clock: time.Now,
	})
	if err != nil {
		return nil, err
	}
	cfg.Progress(fmt.Sprintf("writing %d records", r.Records))
	if err := r.write(ctx, s); err != nil {
		return nil, err
	}
	if err := r.ask(ctx, cfg, s); err != nil {
		return nil, err
	}
	if err := r.compare(ctx, cfg, dir); err != nil {
		return nil, err
	}
	r.Budgets = []Budget{
		budget("history: time for a million records", 1e6/limitIngest, 1e6/r.Rate, "s"),
		budget("history: bytes per record", limitPerRow, r.PerRow, "bytes"),
	}
	for i, q := range r.Queries {
		if limit := historyQuestions[i].limit; limit > 0 {
			r.Budgets = append(r.Budgets, budget(q.Name, limit, q.Milliseconds.Median, "ms"))
		}
		if q.DuckDB.Median > 0 {
			r.Budgets = append(r.Budgets, budget(q.Name+", ratio to DuckDB", 1, q.Milliseconds.Median/q.DuckDB.Median, ""))
		}
	}
	r.end()
	return r, nil
}

// records draws those of an interval: few hosts have most of the traffic.
type historyTraffic struct {
	rand *rand.Rand
	peer *rand.Zipf
}

func (h *historyTraffic) record(at time.Time) flow.Record {
	local, peer := uint32(h.rand.IntN(20_000)), uint32(h.peer.Uint64())
	r := flow.Record{
		Iface: "eth0", IfIndex: 2, Family: 4, Proto: 6, SrcPort: uint16(32768 + h.rand.IntN(28000)), DstPort: []uint16{443, 443, 443, 80, 53, 22}[h.rand.IntN(6)],
		TCPFlags: 0x1b, TTLMin: 64, TTLMax: 64, Initiator: flow.InitiatorSrc, InitiatorBy: 2,
		First: at.Add(time.Duration(h.rand.Int64N(int64(9 * time.Second)))),
	}
	r.Src = netip.AddrFrom4([4]byte{10, byte(local >> 16), byte(local >> 8), byte(local)})
	r.Dst = netip.AddrFrom4([4]byte{100 + byte(peer>>16), byte(peer >> 8), byte(peer), byte(peer % 251)})
	if h.rand.IntN(10) < 3 {
		a, b := r.Src.As4(), r.Dst.As4()
		r.Family = 6
		r.Src = netip.AddrFrom16([16]byte{0x20, 1, 0xd, 0xb8, 0, 1, 12: a[0], 13: a[1], 14: a[2], 15: a[3]})
		r.Dst = netip.AddrFrom16([16]byte{0x20, 1, 0xd, 0xb8, 1, b[0], b[1], b[2], 15: b[3]})
	}
	r.Packets = 1 + uint64(h.rand.ExpFloat64()*20)
	r.Bytes = r.Packets * uint64(60+h.rand.IntN(1400))
	r.WireBytes, r.PayloadBytes = r.Bytes+14*r.Packets, r.Bytes-40*r.Packets
	r.Last = r.First.Add(time.Duration(h.rand.Int64N(int64(time.Second))))
	if h.rand.IntN(4) == 0 {
		r.RTT.Responder = time.Duration(1e6 + h.rand.IntN(50e6))
	}
	return r
}

const historyInterval = 10 * time.Second

// write takes the time from the end of intervals in memory to sealed files.
func (r *HistoryReport) write(ctx context.Context, s *disk.Store) error {
	source := rand.New(rand.NewPCG(1, 2))
	traffic := &historyTraffic{source, rand.NewZipf(source, 1.1, 8, 60_000-1)}
	intervals := int(24 * time.Hour / historyInterval)
	memory := store.New(store.Config{History: 1 << 12})
	var spent time.Duration
	memory.OnEnd(func(e store.Ended) {
		began := time.Now()
		s.Append(e)
		s.Work()
		spent += time.Since(began)
	})
	done := 0
	for n := range intervals {
		if err := ctx.Err(); err != nil {
			return err
		}
		from := historyBegin.Add(time.Duration(n) * historyInterval)
		iv := memory.Begin(from)
		for ; done < r.Records*(n+1)/intervals; done++ {
			record := traffic.record(from)
			iv.Add(&record)
		}
		iv.End(from.Add(historyInterval))
	}
	began := time.Now()
	if err := s.Seal(); err != nil {
		return err
	}
	spent += time.Since(began)
	st := s.Status()
	if st.Records != uint64(r.Records) || st.Counts.Lost+st.Counts.Errors > 0 {
		return fmt.Errorf("%d of %d records are on disk: %+v", st.Records, r.Records, st.Counts)
	}
	r.Rate, r.PerRow = float64(r.Records)/spent.Seconds(), float64(st.Bytes)/float64(r.Records)
	var mem runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&mem)
	r.Resident = mem.HeapAlloc
	return nil
}

// WriteText writes the report as a text with tables.
func (r *HistoryReport) WriteText(w io.Writer) error {
	if err := r.Run.WriteText(w); err != nil {
		return err
	}
	fmt.Fprintf(w, "%d records of 24 hours: %.0f a second to the log and to sealed files, %.1f bytes each; the heap holds %.1f MB after that\n\n",
		r.Records, r.Rate, r.PerRow, float64(r.Resident)/1e6)
	if err := writeBudgets(w, r.Budgets); err != nil {
		return err
	}
	other := "DuckDB " + r.DuckDB
	if r.DuckDB == "" {
		other = "DuckDB: " + duckdb.ErrMissing.Error()
	}
	fmt.Fprintf(w, "\nAnswers in ms, on one processor: median (lowest–highest of five); %s over the same files\n\n", other)
	var rows [][]string
	for _, q := range r.Queries {
		row := []string{q.Name, fmt.Sprint(q.Records), fmt.Sprint(q.Groups), q.Milliseconds.String(), "–"}
		if r.DuckDB != "" {
			row[4] = q.DuckDB.String()
		}
		rows = append(rows, row)
	}
	return writeTable(w, []column{{"", false}, {"records", true}, {"groups", true}, {"ms", true}, {"DuckDB ms", true}}, rows)
}

// WritePlots has nothing to plot.
func (r *HistoryReport) WritePlots(string) error { return nil }
