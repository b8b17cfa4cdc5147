package command

import (
	"io"
	"log/slog"

	"github.com/waymark-net/waymark/internal/config"
)

// Level is a level of the configuration, which allows only names that slog knows.
func Level(cfg config.Log) slog.Level {
	var level slog.Level
	if err := level.UnmarshalText([]byte(cfg.Level)); err != nil {
		return slog.LevelInfo
	}
	return level
}

// NewLogger writes in the format of the configuration.
func NewLogger(cfg config.Log, level slog.Leveler, w io.Writer) *slog.Logger {
	options := &slog.HandlerOptions{Level: level}
	if cfg.Format == "json" {
		return slog.New(slog.NewJSONHandler(w, options))
	}
	return slog.New(slog.NewTextHandler(w, options))
}
