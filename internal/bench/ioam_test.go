package bench

import "testing"

// Every program fills and completes traces, which measureIOAMCosts checks.
func TestIOAMCosts(t *testing.T) {
	costs, err := measureIOAMCosts(traceKinds[2:3], 3)
	if err != nil {
		t.Fatalf("%+v", err)
	}
	for _, c := range costs {
		t.Logf("%s: XDP %v, tc %v, through %v, ingress %v without %v, plain %v off %v",
			c.Fields, c.XDP, c.TC, c.Through, c.Ingress, c.Without, c.Plain, c.PlainOff)
		if c.XDP.Median <= 0 || c.TC.Median <= 0 || c.Through.Median <= c.TC.Median || c.Ingress.Median <= c.Without.Median {
			t.Errorf("%s costs nothing: %+v", c.Fields, c)
		}
	}
}
