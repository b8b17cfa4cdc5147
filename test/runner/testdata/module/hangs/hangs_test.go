package hangs

import (
	"os"
	"os/exec"
	"strconv"
	"testing"
)

func TestHangs(t *testing.T) {
	cmd := exec.Command("sleep", "3600")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(os.Getenv("HANGS"), []byte(strconv.Itoa(cmd.Process.Pid)+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
}
