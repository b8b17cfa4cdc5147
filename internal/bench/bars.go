package bench

import (
	"fmt"
	"os"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
)

// bars is a plot of one value for each of several names, the first on top.
type bars struct {
	file, title, x string
	names          []string
	values         []Spread
}

// write saves it as SVG and PNG, as charts are.
func (b *bars) write(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	p := newPlot(b.title)
	p.X.Label.Text = b.x + ": median, quartiles"
	p.X.Tick.Marker = ticks{plot.DefaultTicks{}}
	names, values := slices.Clone(b.names), slices.Clone(b.values)
	slices.Reverse(names) // the axis begins at the bottom
	slices.Reverse(values)
	medians := make(plotter.Values, len(values))
	for i, v := range values {
		medians[i] = v.Median
	}
	columns, err := plotter.NewBarChart(medians, vg.Points(12))
	if err != nil {
		return fmt.Errorf("plotting %s: %w", b.file, err)
	}
	columns.Horizontal, columns.Color, columns.LineStyle.Width = true, palette[0], 0
	quartiles, err := plotter.NewXErrorBars(spreads(values))
	if err != nil {
		return fmt.Errorf("plotting the spread of %s: %w", b.file, err)
	}
	p.Add(plotter.NewGrid(), columns, quartiles)
	p.NominalY(names...)
	p.Y.Tick.Label.Font.Size = vg.Points(9)
	p.X.Min = 0
	return savePlot(p, dir, b.file)
}

// spreads are values as the plotter wants them.
type spreads []Spread

func (s spreads) Len() int                    { return len(s) }
func (s spreads) XY(i int) (float64, float64) { return s[i].Median, float64(i) }
func (s spreads) XError(i int) (float64, float64) {
	return s[i].Median - s[i].Q1, s[i].Q3 - s[i].Median
}
