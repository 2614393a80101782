package power

import (
	"context"
	"fmt"
	"unsafe"

	"golang.org/x/sys/windows"
)

// systemPowerStatus is SYSTEM_POWER_STATUS.
type systemPowerStatus struct {
	ACLineStatus        byte // 0 battery, 1 outside power, 255 not known
	BatteryFlag         byte
	BatteryLifePercent  byte
	SystemStatusFlag    byte
	BatteryLifeTime     uint32
	BatteryFullLifeTime uint32
}

var getSystemPowerStatus = windows.NewLazySystemDLL("kernel32.dll").NewProc("GetSystemPowerStatus")

func onBattery(context.Context) (bool, error) {
	var s systemPowerStatus
	if ok, _, err := getSystemPowerStatus.Call(uintptr(unsafe.Pointer(&s))); ok == 0 {
		return false, fmt.Errorf("GetSystemPowerStatus: %w", err)
	}
	if s.ACLineStatus == 255 {
		return false, ErrUnknown
	}
	return s.ACLineStatus == 0, nil
}

func changes(context.Context) (<-chan struct{}, error) { return nil, ErrUnknown }
