// Package appkit is the little of Objective-C that tray and window of macOS share, called
// through purego: no cgo, so that it is built anywhere. Wrong selectors or arguments are
// found on a Mac alone; there has been none to run this on.
package appkit

import (
	"fmt"
	"runtime"

	"github.com/ebitengine/purego"
	"github.com/ebitengine/purego/objc"
)

// AppKit takes calls on the main thread alone, and main runs there if it is locked to it
// before it starts.
func init() { runtime.LockOSThread() }

// Point is NSPoint, and NSSize.
type Point struct{ X, Y float64 }

// Rect is NSRect.
type Rect struct{ Origin, Size Point }

// Sel is the selector of a name.
var Sel = objc.RegisterName

// Load opens frameworks by their names, such as Cocoa.
func Load(frameworks ...string) error {
	for _, f := range frameworks {
		if _, err := purego.Dlopen("/System/Library/Frameworks/"+f+".framework/"+f, purego.RTLD_GLOBAL|purego.RTLD_NOW); err != nil {
			return fmt.Errorf("load %s: %w", f, err)
		}
	}
	return nil
}

// Class is a class by its name, to send messages to.
func Class(name string) objc.ID { return objc.ID(objc.GetClass(name)) }

// New makes an object that the caller releases.
func New(class string) objc.ID { return Class(class).Send(Sel("new")) }

// Text is an NSString.
func Text(s string) objc.ID { return Class("NSString").Send(Sel("stringWithUTF8String:"), s) }

// String is what an NSString says.
func String(s objc.ID) string {
	if s == 0 {
		return ""
	}
	return objc.Send[string](s, Sel("UTF8String"))
}

// MainThread says whether the caller is on the main thread.
func MainThread() bool { return objc.Send[bool](Class("NSThread"), Sel("isMainThread")) }

// OnMain has the main thread call a method without arguments.
func OnMain(object objc.ID, method string) {
	object.Send(Sel("performSelectorOnMainThread:withObject:waitUntilDone:"), Sel(method), objc.ID(0), false)
}

// Stop ends the event loop of the app. The loop looks only after an event, so one is sent.
func Stop(app objc.ID) {
	app.Send(Sel("stop:"), objc.ID(0))
	const applicationDefined = 15 // NSEventTypeApplicationDefined
	event := Class("NSEvent").Send(Sel("otherEventWithType:location:modifierFlags:timestamp:windowNumber:context:subtype:data1:data2:"),
		uint64(applicationDefined), Point{}, uint64(0), float64(0), 0, objc.ID(0), int16(0), 0, 0)
	app.Send(Sel("postEvent:atStart:"), event, true)
}
