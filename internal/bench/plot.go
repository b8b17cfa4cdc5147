package bench

import (
	"cmp"
	"fmt"
	"image/color"
	"math"
	"os"
	"path/filepath"
	"strconv"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// series is a line of a plot. notes are set alongside its points, where there are any.
type series struct {
	name  string
	x     []float64
	y     []Spread
	notes []string
}

// chart is a plot, by default over numbers of flows on a logarithmic scale.
type chart struct {
	file, title, y string
	x              string // label of the axis; empty: flows
	linear         bool   // scale of that axis
	series         []series
}

// Colours that stay apart in print and for the colour-blind (Okabe and Ito).
var palette = []color.RGBA{
	{0, 114, 178, 255},
	{213, 94, 0, 255},
	{0, 158, 115, 255},
	{204, 121, 167, 255},
	{230, 159, 0, 255},
	{86, 180, 233, 255},
	{0, 0, 0, 255},
}

var markers = []draw.GlyphDrawer{
	draw.CircleGlyph{},
	draw.SquareGlyph{},
	draw.TriangleGlyph{},
	draw.PyramidGlyph{},
	draw.RingGlyph{},
	draw.BoxGlyph{},
	draw.CrossGlyph{},
}

// write saves the chart as SVG and PNG: medians, with bars from the first to the
// third quartile. The series are set apart, so that no bar hides another; the
// lowest and highest values, which a busy machine makes, are in the tables.
func (c *chart) write(dir string) error {
	p := newPlot(c.title)
	p.X.Label.Text = cmp.Or(c.x, "flows at the same time")
	p.X.Tick.Marker = ticks{plot.DefaultTicks{}}
	if !c.linear {
		p.X.Scale = plot.LogScale{}
		p.X.Tick.Marker = ticks{plot.LogTicks{Prec: -1}}
	}
	p.Y.Label.Text = c.y + ": median, quartiles"
	p.Y.Tick.Marker = ticks{plot.DefaultTicks{}}
	p.Y.Min = 0
	p.Legend.Top, p.Legend.Left = true, true
	p.Legend.Padding = vg.Points(3)
	p.Add(plotter.NewGrid())
	for i, s := range c.series {
		data := points{s, 1}
		if !c.linear {
			data.shift = math.Pow(apart, float64(i)-float64(len(c.series)-1)/2)
		}
		line, marks, err := plotter.NewLinePoints(data)
		if err != nil {
			return fmt.Errorf("plotting %s: %w", s.name, err)
		}
		bars, err := plotter.NewYErrorBars(data)
		if err != nil {
			return fmt.Errorf("plotting the spread of %s: %w", s.name, err)
		}
		colour := palette[i%len(palette)]
		line.Color, line.Width = colour, vg.Points(1.5)
		marks.Color, marks.Shape, marks.Radius = colour, markers[i%len(markers)], vg.Points(3)
		bars.Color = colour
		p.Add(line, marks, bars)
		p.Legend.Add(s.name, line, marks)
		if s.notes != nil {
			notes, err := plotter.NewLabels(plotter.XYLabels{XYs: data.xys(), Labels: s.notes})
			if err != nil {
				return fmt.Errorf("plotting the notes of %s: %w", s.name, err)
			}
			for j := range notes.TextStyle {
				notes.TextStyle[j].Font.Variant = "Sans"
				notes.TextStyle[j].Color = colour
				notes.TextStyle[j].XAlign, notes.TextStyle[j].YAlign = text.XRight, text.YTop
			}
			notes.Offset = vg.Point{X: vg.Points(-2), Y: vg.Points(-5)}
			p.Add(notes)
		}
		for _, y := range s.y {
			p.Y.Max = max(p.Y.Max, y.Median*1.45, y.Q3*1.25)
		}
	}
	p.Y.Min = min(p.Y.Min, 0)
	return savePlot(p, dir, c.file)
}

// newPlot is one without data.
func newPlot(title string) *plot.Plot {
	p := plot.New()
	p.Title.Text = title
	p.Title.Padding = vg.Points(8)
	p.BackgroundColor = color.White
	for _, style := range []*text.Style{
		&p.Title.TextStyle, &p.X.Label.TextStyle, &p.Y.Label.TextStyle, &p.X.Tick.Label, &p.Y.Tick.Label, &p.Legend.TextStyle,
	} {
		style.Font.Variant = "Sans"
	}
	return p
}

func savePlot(p *plot.Plot, dir, name string) error {
	for _, extension := range []string{".svg", ".png"} {
		file := filepath.Join(dir, name+extension)
		if err := p.Save(18*vg.Centimeter, 11*vg.Centimeter, file); err != nil {
			return fmt.Errorf("writing %s: %w", file, err)
		}
	}
	return nil
}

// ticks are labelled with plain numbers.
type ticks struct{ plot.Ticker }

func (t ticks) Ticks(low, high float64) []plot.Tick {
	all := t.Ticker.Ticks(low, high)
	for i := range all {
		if all[i].Label != "" {
			all[i].Label = strconv.FormatFloat(all[i].Value, 'f', -1, 64)
		}
	}
	return all
}

// apart is the factor between neighbouring series on the axis of flows.
const apart = 1.09

// points is a series as the plotter wants it, shifted by a factor.
type points struct {
	s     series
	shift float64
}

func (p points) Len() int                    { return len(p.s.x) }
func (p points) XY(i int) (float64, float64) { return p.s.x[i] * p.shift, p.s.y[i].Median }
func (p points) YError(i int) (float64, float64) {
	y := p.s.y[i]
	return y.Median - y.Q1, y.Q3 - y.Median
}

func (p points) xys() (out plotter.XYs) {
	for i := range p.s.x {
		x, y := p.XY(i)
		out = append(out, plotter.XY{X: x, Y: y})
	}
	return out
}

func writeCharts(dir string, charts []chart) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for i := range charts {
		if err := charts[i].write(dir); err != nil {
			return err
		}
	}
	return nil
}

// WritePlots draws what each program costs over the number of flows.
func (r *DatapathReport) WritePlots(dir string) error {
	var charts []chart
	for _, k := range []string{"IPv4/UDP", "IPv6/TCP"} {
		c := chart{
			file:  map[string]string{"IPv4/UDP": "datapath-ipv4-udp", "IPv6/TCP": "datapath-ipv6-tcp"}[k],
			title: "A packet through the programs (" + k + ")",
			y:     "ns over the empty program",
		}
		for _, name := range []string{costIngress, costHash, costLRU, costPerCPU, costParse} {
			s := series{name: map[string]string{costIngress: "waymark", costParse: "waymark, parsing only"}[name]}
			if s.name == "" {
				s.name = name
			}
			for _, p := range r.Points {
				for _, cost := range p.Costs {
					if p.Packet == k && cost.Program == name {
						s.x = append(s.x, float64(p.Flows))
						s.y = append(s.y, cost.Over)
					}
				}
			}
			c.series = append(c.series, s)
		}
		read := series{name: "one random read of memory"}
		for _, p := range r.Points {
			if p.Packet == k {
				read.x = append(read.x, float64(p.Flows))
				read.y = append(read.y, p.Read)
			}
		}
		c.series = append(c.series, read)
		charts = append(charts, c)
	}
	return writeCharts(dir, charts)
}

// WritePlots draws the cost of each probe over the number of flows.
func (r *ProbesReport) WritePlots(dir string) error {
	charts := []chart{
		{file: "probes-kernel", title: "What a probe adds to each packet in the kernel", y: "ns over no probe"},
		{file: "probes-process", title: "Processor time of the probe's process", y: "ns a packet"},
		{file: "probes-memory", title: "Resident memory of the probe's process", y: "MiB"},
	}
	for i, value := range []func(*ProbeCost) Spread{
		func(c *ProbeCost) Spread { return c.Over },
		func(c *ProbeCost) Spread { return only(c.Process) },
		func(c *ProbeCost) Spread { return only(c.Memory) },
	} {
		at := map[string]int{}
		for j := range r.Measured {
			c := &r.Measured[j]
			if c.Probe == none {
				continue
			}
			k, known := at[c.Probe]
			if !known {
				k = len(charts[i].series)
				at[c.Probe] = k
				charts[i].series = append(charts[i].series, series{name: c.Probe})
			}
			s := &charts[i].series[k]
			s.x = append(s.x, float64(c.Flows))
			s.y = append(s.y, value(c))
			note := ""
			if share := c.share(); share < 0.995 {
				note = fmt.Sprintf("counted %.0f %%", 100*share)
			}
			s.notes = append(s.notes, note)
		}
	}
	return writeCharts(dir, charts)
}
