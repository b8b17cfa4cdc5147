package service

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// saveBans writes the bans to their file, if there is one, as a whole or not at all. It
// needs the lock of the bans.
func (s *service) saveBans() (err error) {
	if s.bansFile == "" {
		return nil
	}
	out := Bans{Bans: []Ban{}, Max: s.maxBans}
	for _, b := range s.bans.known {
		out.Bans = append(out.Bans, b)
	}
	text, err := json.MarshalIndent(out, "", "  ")
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(s.bansFile), ".bans-*")
	if err != nil {
		return fmt.Errorf("save bans: %w: gate.bans.file must be in a directory that the agent's user may write to", err)
	}
	_, err = f.Write(text)
	err = errors.Join(err, f.Close())
	if err == nil {
		err = os.Rename(f.Name(), s.bansFile)
	}
	if err != nil {
		_ = os.Remove(f.Name()) // it is of no use
		return fmt.Errorf("save bans: %w", err)
	}
	return nil
}

// loadBans makes the bans of the file effective that have not ended.
func (s *service) loadBans(now time.Time) error {
	if s.bansFile == "" {
		return nil
	}
	text, err := os.ReadFile(s.bansFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read bans: %w", err)
	}
	var in Bans
	if err := json.Unmarshal(text, &in); err != nil {
		return fmt.Errorf("read bans: %s: %w: remove the file to start without bans", s.bansFile, err)
	}
	s.bans.Lock()
	defer s.bans.Unlock()
	for _, b := range in.Bans {
		if !b.Prefix.IsValid() || b.Prefix != b.Prefix.Masked() || b.Until != nil && !now.Before(*b.Until) {
			continue
		}
		b.Dropped, b.DroppedBytes = 0, 0
		if err := s.enforce(&b); err != nil {
			return fmt.Errorf("bans of %s: %w", s.bansFile, err)
		}
	}
	s.deps.Log.Info("gate: bans of before are in effect", "file", s.bansFile, "bans", len(s.bans.known))
	return nil
}
