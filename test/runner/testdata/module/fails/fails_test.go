package fails

import "testing"

func TestParent(t *testing.T) {
	t.Run("good", func(*testing.T) {})
	t.Run("bad", func(t *testing.T) { t.Error("the reason it failed") })
}

func TestOwnFailure(t *testing.T) {
	t.Run("good", func(*testing.T) {})
	t.Error("failed alongside its subtests")
}
