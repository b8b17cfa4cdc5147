package marktest

import (
	"fmt"
	"testing"
)

// attempts is how often a test is made whose result a busy machine may change.
const attempts = 6

// Attempt makes a test again while it reports that the machine disturbed it, and how: processors that the machine takes
// away for a while make TCP send again what has arrived. What marking is to blame for comes each time.
func Attempt(t *testing.T, test func(t *testing.T) (disturbed string)) {
	t.Helper()
	var disturbed string
	for i := range attempts {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			if disturbed = test(t); disturbed != "" {
				t.Log("disturbed: " + disturbed)
			}
		})
		if disturbed == "" {
			return
		}
	}
	t.Errorf("in each of %d attempts: %s", attempts, disturbed)
}
