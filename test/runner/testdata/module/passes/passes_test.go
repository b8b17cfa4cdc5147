package passes

import "testing"

func TestPlain(*testing.T) {}

func TestSubtests(t *testing.T) {
	t.Run("one", func(*testing.T) {})
	t.Run("with/slash", func(*testing.T) {})
}
