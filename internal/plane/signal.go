package plane

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// received takes a signal that waits.
func received(signal <-chan struct{}) bool {
	select {
	case <-signal:
		return true
	default:
		return false
	}
}

// touch notes that the server knows something new of a machine.
func (p *Plane) touch(machine string) {
	p.mu.Lock()
	p.touched[machine] = true
	p.mu.Unlock()
	signal(p.signals.fleet)
}

func (p *Plane) touchedMachines() map[string]bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	t := p.touched
	p.touched = map[string]bool{}
	return t
}
