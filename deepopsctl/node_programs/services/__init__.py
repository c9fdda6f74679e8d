"""What runs on nodes by itself: daemons, and programs that timers start."""
