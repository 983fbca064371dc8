package plane

import "reflect"

// input is a channel from which the loop receives, and what it does with what comes.
type input struct {
	channel  reflect.SelectCase
	received func(reflect.Value)
	// poll serves what waits, if something does.
	poll func()
}

// from is an input; of a nil channel nothing comes.
func from[T any](c <-chan T, serve func(T)) input {
	return input{
		channel:  reflect.SelectCase{Dir: reflect.SelectRecv, Chan: reflect.ValueOf(c)},
		received: func(v reflect.Value) { serve(v.Interface().(T)) },
		poll: func() {
			select {
			case v := <-c:
				serve(v)
			default:
			}
		},
	}
}

// serveNext waits until something comes from one of the inputs, and serves it. Of several that have something any
// may be next.
func serveNext(inputs ...input) {
	channels := make([]reflect.SelectCase, len(inputs))
	for i, in := range inputs {
		channels[i] = in.channel
	}
	i, v, _ := reflect.Select(channels)
	inputs[i].received(v)
}

// always is a channel from which something always comes.
var always = func() <-chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()
