package proxy

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"

	"fairlead.dev/internal/driver/proxy/confine"
)

// In the run directory of an Envoy of another user there are
const (
	// userDir, all that it may write into: it makes its admin socket there. The agent follows nothing
	// that lies there by its name, but for that socket.
	userDir = "proxy"
	// nameDir, with a link to its binary: by it the process has Envoy's name.
	nameDir    = "exe"
	binaryName = nameDir + "/envoy"
)

// furnish makes the run directory what a new Envoy needs.
//
// One of another user is in that directory, and names everything from there, for it may have no
// path to it. Its group may write what it logs and connect to the agent. admin.sock leads to its socket: agents before knew no other place.
func (s *Supervisor) furnish(bootstrap []byte) error {
	if err := remove(s.admin.path); err != nil {
		return fmt.Errorf("remove old admin socket: %w", err)
	}
	s.ejections.reset()
	if err := s.makeRoom(); err != nil {
		return err
	}
	if err := os.WriteFile(s.path("bootstrap.json"), bootstrap, 0o600); err != nil {
		return fmt.Errorf("write bootstrap: %w", err)
	}
	return nil
}

// makeRoom makes room for another user in the run directory, which nobody else can change (secure).
func (s *Supervisor) makeRoom() error {
	u := s.config.User
	if u.same() { // another one may have been let at them before
		_ = os.Chmod(s.config.ADSSocket, 0o600)
		_ = os.Chmod(s.path("envoy.log"), 0o600)
		return nil
	}
	err := s.let(u.GID)
	if err == nil {
		err = s.makeUserDir()
	}
	if err == nil {
		err = s.makeName()
	}
	if err == nil {
		err = os.Symlink(filepath.Join(userDir, adminSocket), s.admin.path)
	}
	if err != nil {
		return fmt.Errorf("prepare the run directory for user %s: %w", u, err)
	}
	return nil
}

func remove(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// makeUserDir makes the directory that Envoy owns. What it makes there has the agent's group, for
// an agent in a container may have no right to the files of others. What an Envoy before left
// there is put aside where it does not go away: it may be anything.
func (s *Supervisor) makeUserDir() error {
	dir := s.path(userDir)
	_ = os.Remove(filepath.Join(dir, adminSocket))
	if err := remove(dir); err != nil {
		aside := dir + "." + strconv.FormatInt(s.config.Now().UnixNano(), 36)
		if err := os.Rename(dir, aside); err != nil {
			return err
		}
		s.config.Log.Warn("moved aside the files that a previous proxy left", "directory", aside)
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	// A unit of systemd may forbid the set-group-ID bit (RestrictSUIDSGID=).
	err := os.Chmod(dir, fs.ModeSetgid|0o770)
	if errors.Is(err, fs.ErrPermission) {
		err = os.Chmod(dir, 0o770)
	}
	if err != nil {
		return err
	}
	return os.Lchown(dir, int(s.config.User.UID), os.Getegid())
}

// makeName makes the link by which Envoy is started.
func (s *Supervisor) makeName() error {
	dir, link := s.path(nameDir), s.path(binaryName)
	_ = os.Remove(link)
	if err := remove(dir); err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o711); err != nil {
		return err
	}
	if err := os.Chmod(dir, 0o711); err != nil { // of any umask
		return err
	}
	return os.Symlink(confine.FilePath(envoyFiles), link)
}

// secure sees that nobody else can change the run directory of an Envoy of another user, and that
// that user may pass through it: what is in it has rights of its own.
func (s *Supervisor) secure() error {
	if s.config.User.same() {
		return nil
	}
	dir, err := os.OpenFile(s.config.RunDir, os.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return err
	}
	defer dir.Close()
	info, err := dir.Stat()
	if err != nil {
		return err
	}
	mode, owner := info.Mode(), int(info.Sys().(*syscall.Stat_t).Uid)
	switch {
	case owner != os.Geteuid():
		return fmt.Errorf("%s belongs to user %d, who could replace its contents: choose another directory with --run-dir, or run Envoy as the agent with --envoy-user same", s.config.RunDir, owner)
	case mode&fs.ModeSticky != 0:
		return fmt.Errorf("%s can be written by everybody, like /tmp or a memory volume of Kubernetes: choose a directory below it with --run-dir (in a pod, mount the volume at /run), or run Envoy as the agent with --envoy-user same", s.config.RunDir)
	case mode&0o022 != 0 || mode&0o001 == 0:
		return dir.Chmod(mode.Perm()&^0o022 | 0o001)
	}
	return nil
}

// let lets a group at what Envoy needs of the run directory: at a start, and when it is adopted, for
// the agent has made its socket anew, and systemd may have taken the others back for the agent
// (systemd.exec(5), RuntimeDirectory=).
func (s *Supervisor) let(gid uint32) error {
	for _, path := range []string{s.ejections.path, s.path("envoy.log"), s.config.ADSSocket} {
		if err := letAt(path, gid, path == s.config.ADSSocket); err != nil {
			return err
		}
	}
	return nil
}

// letAt lets a group at a socket of ours, or a file, which is made where it is missing.
func letAt(path string, gid uint32, socket bool) error {
	if socket {
		f, err := openPath(path, unix.O_NOFOLLOW)
		if err != nil {
			return err
		}
		defer f.Close()
		itself := fmt.Sprintf("/proc/self/fd/%d", f.Fd())
		return errors.Join(os.Chown(itself, -1, int(gid)), os.Chmod(itself, 0o660))
	}
	f, err := os.OpenFile(path, os.O_RDONLY|os.O_CREATE|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	return errors.Join(f.Chown(-1, int(gid)), f.Chmod(0o660))
}

// configured are the arguments by which Envoy gets its bootstrap. It reads a file by its whole path
// (realpath(3)), which another user may not go.
func (s *Supervisor) configured(bootstrap []byte) []string {
	if s.config.User.same() {
		return []string{"-c", s.path("bootstrap.json")}
	}
	var line bytes.Buffer
	if json.Compact(&line, bootstrap) != nil {
		line.Reset()
		line.Write(bootstrap)
	}
	return []string{"--config-yaml", line.String()}
}

// toEnvoy is the path of something in the run directory as Envoy is told it.
func (s *Supervisor) toEnvoy(path string) string {
	if s.config.User.same() {
		return path
	}
	if local, err := filepath.Rel(s.config.RunDir, path); err == nil && filepath.IsLocal(local) {
		return local
	}
	return path
}
