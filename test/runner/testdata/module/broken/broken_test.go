package broken

import "testing"

func TestNotCompiled(*testing.T) { undefinedFunction() }
