package passes

import "testing"

func TestPlain(*testing.T) {}

func TestSubtests(t *testing.T) {
	t.Attr("not-run", "no such frames: 2 cases: a, b")
	t.Run("one", func(*testing.T) {})
	t.Run("with/slash", func(*testing.T) {})
}
