package power

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

func onBattery(context.Context) (bool, error) { return Sysfs(os.DirFS("/sys/class/power_supply")) }

// changes listens to the kernel's own messages about devices.
func changes(ctx context.Context) (<-chan struct{}, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_KOBJECT_UEVENT)
	if err != nil {
		return nil, fmt.Errorf("%w: listen to the kernel: %w", ErrUnknown, err)
	}
	const kernel = 1 // the group of the kernel's messages; udev's are in another
	if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: kernel}); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("%w: listen to the kernel: %w", ErrUnknown, err)
	}
	socket := os.NewFile(uintptr(fd), "uevents")
	changed := make(chan struct{}, 1)
	stop := context.AfterFunc(ctx, func() { socket.Close() })
	go func() {
		defer close(changed)
		defer socket.Close()
		defer stop()
		message := make([]byte, 16<<10)
		for {
			n, err := socket.Read(message)
			if err != nil && !errors.Is(err, unix.ENOBUFS) {
				return
			}
			// ENOBUFS: messages were dropped, so it may have been among them.
			if err == nil && !supply(message[:n]) {
				continue
			}
			select {
			case changed <- struct{}{}:
			default: // whoever listens has yet to look
			}
		}
	}()
	return changed, nil
}

// supply says whether a message of the kernel is about a power supply: fields that end
// with a zero byte, of which the first is the event.
func supply(message []byte) bool {
	for field := range bytes.SplitSeq(message, []byte{0}) {
		if string(field) == "SUBSYSTEM=power_supply" {
			return true
		}
	}
	return false
}
