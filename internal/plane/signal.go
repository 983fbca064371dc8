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
