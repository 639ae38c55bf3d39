"""From statements to planned sources and views: every mistake is found here."""
