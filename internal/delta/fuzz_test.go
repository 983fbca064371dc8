package delta

import (
	"testing"

	"google.golang.org/genproto/googleapis/rpc/status"
)

// FuzzReceive feeds a stream with arbitrary requests and its set with arbitrary
// changes. Whatever comes, it must not panic, keep its books right, and come to
// rest once the client answers as it should.
func FuzzReceive(f *testing.F) {
	f.Add([]byte{0, 0, 2, 1, 5, 2, 3, 4, 0, 0})
	f.Add([]byte{3, 7, 0, 1, 9, 200, 4, 4, 4, 1, 1, 1, 255, 254, 253})
	f.Add([]byte("a client that says anything at all, in any order whatsoever"))
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) > 400 {
			data = data[:400]
		}
		next := func() byte {
			if len(data) == 0 {
				return 0
			}
			b := data[0]
			data = data[1:]
			return b
		}
		sets := []*Set{NewSet(), NewSet(), NewSet()}
		types := []Type{typeA, typeB, typeLast, ""}
		names := []string{"a", "b", "c", "d", "*", ""}
		pick := func() []string {
			var ns []string
			for n := next() % 4; n > 0; n-- {
				ns = append(ns, names[int(next())%len(names)])
			}
			return ns
		}
		st := NewStream(Options{Last: []Type{typeLast}, MaxResponseBytes: 60, MaxNames: 12, MaxTypes: 3}, sets[0], sets[1])
		var nonces []string
		rev := uint64(0)
		for len(data) > 0 {
			switch next() % 6 {
			case 0, 1:
				req := &request{TypeUrl: string(types[int(next())%len(types)]), ResourceNamesSubscribe: pick(), ResourceNamesUnsubscribe: pick()}
				if next()%3 == 0 {
					req.InitialResourceVersions = map[string]string{}
					for _, n := range pick() {
						req.InitialResourceVersions[n] = string(next()%3 + '0')
					}
				}
				if n := int(next()); len(nonces) > 0 && n%2 == 0 {
					req.ResponseNonce = nonces[len(nonces)-1-n/2%len(nonces)]
				}
				if next()%3 == 0 {
					req.ErrorDetail = &status.Status{Message: "no"}
				}
				_ = st.Receive(req) // an error must leave the state as it was
			case 2, 3:
				rev++
				c := Change{Type: types[int(next())%3], Name: names[int(next())%len(names)]}
				if v := next() % 4; v > 0 {
					c.Resource = text(c.Name, string('0'+v))
				}
				sets[int(next())%len(sets)].Update(Revision{1, rev}, []Change{c})
			case 4:
				if resp := st.Next(); resp != nil {
					nonces = append(nonces, resp.GetNonce())
				}
			case 5:
				st.SetLayers(sets[int(next())%2*2], sets[1])
			}
			if err := verify(st); err != nil {
				t.Fatal(err)
			}
			for _, s := range sets {
				if err := verifySet(s, st); err != nil {
					t.Fatal(err)
				}
			}
		}
		for range 1000 {
			for _, s := range st.subs {
				if s.outstanding != nil {
					if err := st.Receive(&request{TypeUrl: string(s.typ), ResponseNonce: s.outstanding.nonce}); err != nil {
						t.Fatal(err)
					}
				}
			}
			if st.Next() == nil {
				break
			}
		}
		for _, typ := range types {
			if !st.Settled(typ) {
				t.Fatalf("%s does not settle", typ)
			}
		}
		if err := verify(st); err != nil {
			t.Fatal(err)
		}
	})
}
