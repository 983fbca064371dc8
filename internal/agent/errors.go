package agent

import "errors"

// Errors of joining. They are wrapped with the plane's address and the remedy.
var (
	// errToken: the token cannot be read, or the plane does not accept it.
	errToken = errors.New("join token refused")
	// errPin: the server is neither the plane that made the token nor the plane whose
	// authority the cluster has published.
	errPin = errors.New("the plane's certificate authority is not the one that this machine was given")
	// errName: the token, or the identity on disk, is another machine's.
	errName = errors.New("machine name mismatch")
	// errNameTaken: a live machine has the name.
	errNameTaken = errors.New("machine name is taken")
	// errUnreachable: no plane answered.
	errUnreachable = errors.New("no plane can be reached")
	// errNoIdentity: there is neither an identity nor a token.
	errNoIdentity = errors.New("no identity and no join token")
	// errExpired: the certificate's time is over.
	errExpired = errors.New("certificate expired")
	// errStranger: the plane and this machine's identity do not belong together.
	errStranger = errors.New("this machine does not belong to the plane")
	// ErrNoToken: there is no token to join with.
	ErrNoToken = errors.New("no token was given")
)
