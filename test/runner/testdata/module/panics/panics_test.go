package panics

import "testing"

func TestBefore(*testing.T) {}

func TestPanics(*testing.T) { panic("out of cheese") }

func TestNeverReached(*testing.T) {}
