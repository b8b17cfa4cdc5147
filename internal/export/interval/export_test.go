package interval

// SetBack has the next interval follow an earlier one, as after a snapshot of the machine was restored.
func (s *Sender) SetBack(number uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.number = number
}
