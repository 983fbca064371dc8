package proxy

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/user"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Whom Envoy runs as, beside the name of an account or its numbers.
const (
	// AutoUser is a user of its own where the agent is root and may have others: the account
	// UserAccount, or a number that no account has.
	AutoUser = "auto"
	// SameUser is the agent's own user.
	SameUser = "same"
	// UserAccount is the account of Envoy, if the machine has it.
	UserAccount = "fairlead-envoy"
)

// Numbers of users and groups that systems give nobody: above those of dynamic users, below
// nobody's (systemd, "Users, Groups, UIDs and GIDs"), and in namespaces of 65,536 as well.
const (
	firstFree = 65520
	lastFree  = 65533
)

// User is the user that Envoy runs as. The zero value is the agent's own user.
type User struct{ UID, GID uint32 }

// same says that it is the agent's own: root, where it has numbers, is nobody else.
func (u User) same() bool { return u.UID == 0 }

func (u User) String() string {
	if u.same() {
		return strconv.Itoa(os.Geteuid())
	}
	return fmt.Sprintf("%d:%d", u.UID, u.GID)
}

// needed are the capabilities that it takes to run Envoy as another user, to end it and to give
// it its files.
var needed = [...]struct {
	name string
	bit  uint
}{
	{"CAP_CHOWN", unix.CAP_CHOWN}, {"CAP_KILL", unix.CAP_KILL}, {"CAP_SETGID", unix.CAP_SETGID}, {"CAP_SETUID", unix.CAP_SETUID},
}

// FindUser finds the user that Envoy is to run as: AutoUser, SameUser, an account, UID or UID:GID.
// why is the reason why AutoUser found no other user than root.
func FindUser(text string) (u User, why string, err error) {
	if text == SameUser {
		return User{}, "", nil
	}
	auto := text == AutoUser || text == ""
	if auto && os.Geteuid() != 0 {
		return User{}, "", nil // it has no rights to lose
	}
	if auto {
		if u, err = ofItsOwn(); err != nil {
			return User{}, "", err
		}
	} else if u, err = named(text); err != nil {
		return User{}, "", err
	}
	if u.same() || int(u.UID) == os.Geteuid() {
		return User{}, "", nil
	}
	if why = u.hindered(); why != "" && !auto {
		return User{}, "", fmt.Errorf("envoy cannot run as %s: %s", text, why)
	}
	if why != "" {
		return User{}, why, nil
	}
	return u, "", nil
}

// ofItsOwn is the account of Envoy, or the first number that neither an account nor a group has.
func ofItsOwn() (User, error) {
	if account, err := user.Lookup(UserAccount); err == nil {
		u, err := numbers(account.Uid, account.Gid)
		if err != nil {
			return User{}, fmt.Errorf("account %s: %w", UserAccount, err)
		}
		return u, nil
	}
	for n := firstFree; n <= lastFree; n++ {
		text := strconv.Itoa(n)
		_, account := user.LookupId(text)
		_, group := user.LookupGroupId(text)
		if account != nil && group != nil {
			return User{uint32(n), uint32(n)}, nil
		}
	}
	return User{}, fmt.Errorf("all users from %d to %d are in use: name another one", firstFree, lastFree)
}

func named(text string) (User, error) {
	uid, gid, both := strings.Cut(text, ":")
	if !both {
		gid = uid
	}
	u, err := numbers(uid, gid)
	if err == nil {
		return u, nil
	}
	account, lookup := user.Lookup(text)
	if lookup != nil {
		return User{}, fmt.Errorf("%q is not an account of this machine, a UID, UID:GID, %s or %s", text, AutoUser, SameUser)
	}
	return numbers(account.Uid, account.Gid)
}

func numbers(uid, gid string) (User, error) {
	u, err := strconv.ParseUint(uid, 10, 31)
	g, e := strconv.ParseUint(gid, 10, 31)
	if err = errors.Join(err, e); err != nil {
		return User{}, fmt.Errorf("%s:%s are not the numbers of a user and a group: %w", uid, gid, err)
	}
	return User{uint32(u), uint32(g)}, nil
}

// hindered is what keeps this process from running others as that user.
func (u User) hindered() string {
	has, err := capabilities()
	if err != nil {
		return err.Error()
	}
	var lacks []string
	for _, c := range needed {
		if has&(1<<c.bit) == 0 {
			lacks = append(lacks, c.name)
		}
	}
	if len(lacks) > 0 {
		return "the agent lacks " + strings.Join(lacks, ", ") + " (AmbientCapabilities= of its unit, or capabilities of its container)"
	}
	if text, err := os.ReadFile("/proc/self/setgroups"); err == nil && bytes.HasPrefix(text, []byte("deny")) {
		return "this container may not change groups (/proc/self/setgroups)"
	}
	for _, m := range [...]struct {
		file string
		id   uint32
	}{{"/proc/self/uid_map", u.UID}, {"/proc/self/gid_map", u.GID}} {
		if text, err := os.ReadFile(m.file); err == nil && !within(text, m.id) {
			return fmt.Sprintf("this container has no user and group %s: name some that it has with --envoy-user", u)
		}
	}
	return ""
}

// capabilities are those that this process has in effect, a bit each.
func capabilities() (uint64, error) {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return 0, fmt.Errorf("read the agent's capabilities: %w", err)
	}
	return uint64(data[1].Effective)<<32 | uint64(data[0].Effective), nil
}

// within says whether a number is one of a user namespace, by its uid_map or gid_map
// (user_namespaces(7)).
func within(text []byte, id uint32) bool {
	for line := range bytes.Lines(text) {
		var inside, outside, count uint64
		if n, _ := fmt.Sscan(string(line), &inside, &outside, &count); n == 3 && uint64(id) >= inside && uint64(id) < inside+count {
			return true
		}
	}
	return false
}

// userOf is whom a process runs as.
func userOf(pid int) (uid uint32, known bool) {
	info, err := os.Stat("/proc/" + strconv.Itoa(pid))
	if err != nil {
		return 0, false
	}
	stat, is := info.Sys().(*syscall.Stat_t)
	if !is {
		return 0, false
	}
	return stat.Uid, true
}
