package agent

import "errors"

// Errors of joining. They are wrapped with the plane's address and the remedy.
var (
	// ErrToken: the token cannot be read, or the plane does not accept it.
	ErrToken = errors.New("join token refused")
	// ErrPin: the server is neither the plane that made the token nor the plane whose
	// authority the cluster has published.
	ErrPin = errors.New("the plane's certificate authority is not the one that this machine was given")
	// ErrName: the token, or the identity on disk, is another machine's.
	ErrName = errors.New("machine name mismatch")
	// ErrNameTaken: a live machine has the name.
	ErrNameTaken = errors.New("machine name is taken")
	// ErrUnreachable: no plane answered.
	ErrUnreachable = errors.New("no plane can be reached")
	// ErrNoIdentity: there is neither an identity nor a token.
	ErrNoIdentity = errors.New("no identity and no join token")
	// ErrExpired: the certificate's time is over.
	ErrExpired = errors.New("certificate expired")
	// ErrStranger: the plane and this machine's identity do not belong together.
	ErrStranger = errors.New("this machine does not belong to the plane")
	// ErrNoToken: there is no token to join with.
	ErrNoToken = errors.New("no token was given")
)
